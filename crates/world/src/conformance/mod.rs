//! The laws that every world must pass.
//!
//! A law is a program, generic over the world, that panics if the world violates it. Laws are small
//! enough for the model, which runs them in every interleaving. In worlds where time passes, laws
//! repeat, so natively they are stress tests. [`conformance_tests!`](crate::conformance_tests)
//! creates one test for each law.
//!
//! Two laws are not in that list, because not every world can satisfy them:
//! [`words::constants_make_fresh_words`] needs a [`ConstWorld`](crate::ConstWorld), and
//! [`threads::a_join_raises_the_panic`] needs a world that continues after a thread has panicked.

pub mod clock;
pub mod extension;
pub mod kick;
pub mod order;
pub mod place;
pub mod restartable;
pub mod sleep;
pub mod statics;
pub mod threads;
pub mod waits;
pub mod words;
pub mod work;

use std::sync::Arc;

use crate::{Integer, JoinHandle, Ordering, Placement, Testbed, Word};

/// Creates one `#[test]` for each law of [`conformance`](crate::conformance), with the law's name.
///
/// The second argument is a closure that gets the law, a `fn()`, and runs it inside the world.
///
/// ```
/// use coreline_world::model::{Model, check};
///
/// coreline_world::conformance_tests!(Model, |law| check(law));
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($world:ty, $run:expr) => {
        $crate::conformance_tests! {
            @each $world, $run;
            words::integers_compute,
            words::words_exchange,
            words::layout_is_native,
            order::published_data_is_seen,
            order::a_wait_sees_what_was_published,
            order::a_wait_returns_what_it_accepted,
            order::a_bounded_wait_sees_what_was_published,
            order::swaps_publish,
            order::exchanges_publish,
            order::a_failed_exchange_receives,
            order::additions_publish,
            order::subtractions_publish,
            order::ands_publish,
            order::ors_publish,
            order::xors_publish,
            order::fences_publish,
            order::full_fences_forbid_store_buffering,
            order::a_light_and_a_heavy_fence_forbid_store_buffering,
            order::a_light_fence_publishes_to_what_has_seen,
            order::a_light_fence_ends_reads_for_what_has_seen,
            order::a_word_never_goes_back,
            order::additions_are_never_lost,
            order::one_exchange_wins,
            statics::a_static_is_one_object,
            statics::a_static_is_one_object_for_each_type,
            statics::each_key_has_its_own_object,
            statics::a_local_belongs_to_its_thread,
            waits::a_bounded_wait_takes_what_is_there,
            waits::a_bounded_wait_gives_up_at_its_deadline,
            waits::a_bounded_wait_misses_nothing_before_its_deadline,
            waits::a_wait_that_is_given_up_and_a_grant_agree,
            sleep::a_changed_word_does_not_put_to_sleep,
            sleep::a_deadline_ends_the_sleep,
            sleep::no_wakeup_is_lost,
            sleep::a_wake_of_one_wakes_one,
            sleep::a_wake_is_for_its_word,
            sleep::a_wake_is_for_its_groups,
            sleep::a_wake_says_that_it_woke_a_thread,
            kick::every_cpu_can_be_kicked,
            kick::a_preemptible_thread_need_not_yield,
            extension::requests_are_made_where_there_are_extensions,
            extension::only_the_outermost_section_asks,
            extension::sections_end_on_a_crowded_cpu,
            place::discarded_bytes_are_as_they_were_or_zero,
            place::a_placed_thread_runs_on_its_cpu,
            place::an_impossible_cpu_is_refused,
            restartable::no_addition_is_lost,
            restartable::an_addition_lands_in_the_slot_of_its_cpu,
            restartable::indexes_are_in_bounds,
            clock::time_never_goes_back,
            clock::a_sleep_lasts,
            work::work_takes_its_time,
            threads::a_join_returns_the_value,
            threads::a_dropped_handle_detaches,
            threads::a_thread_knows_its_own_handle,
        }
    };
    (@each $world:ty, $run:expr; $($module:ident::$law:ident,)*) => {
        $(
            #[test]
            fn $law() {
                let run: fn(fn()) = $run;
                run($crate::conformance::$module::$law::<$world>);
            }
        )*
    };
}

/// Returns, as a constant, whether a type implements a trait. Use it in tests of `Send` and `Sync`.
///
/// ```
/// use coreline_world::implements;
///
/// assert!(implements!(std::cell::Cell<u32>: Send));
/// assert!(!implements!(std::cell::Cell<u32>: Sync));
/// ```
#[macro_export]
macro_rules! implements {
    ($type:ty: $trait:ident) => {{
        // An inherent constant, where its bounds hold, goes before one of a trait.
        #[allow(dead_code, reason = "unused where the bound holds")]
        trait Otherwise {
            const HOLDS: bool = false;
        }
        struct Is<T>(::core::marker::PhantomData<T>);
        impl<T> Otherwise for Is<T> {}
        #[allow(dead_code, reason = "unused where it does not")]
        impl<T: $trait> Is<T> {
            const HOLDS: bool = true;
        }
        Is::<$type>::HOLDS
    }};
}

/// How often a law repeats a race: once if every interleaving is explored anyway.
fn rounds<W: Testbed>() -> u32 {
    if W::RUNS { 2000 } else { 1 }
}

fn spawn<W: Testbed, T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> W::JoinHandle<T> {
    W::spawn(Placement::Anywhere, f).expect("a world has room for a few threads")
}

/// Runs the two sides against each other, once a round, each round on a fresh state, and hands
/// `law` what the sides returned.
fn race<W: Testbed, S, A, B>(
    fresh: impl Fn() -> S,
    left: impl Fn(&S) -> A + Send + 'static,
    right: impl Fn(&S) -> B + Send + 'static,
    law: impl Fn(&S, A, B),
) where
    S: Send + Sync + 'static,
    A: Send + 'static,
    B: Send + 'static,
{
    let states: Arc<Vec<S>> = Arc::new((0..rounds::<W>()).map(|_| fresh()).collect());
    let arrived = Arc::new(W::U32::new_in(0));
    let lefts = side::<W, S, A>(&states, &arrived, left);
    let rights = side::<W, S, B>(&states, &arrived, right);
    for ((state, left), right) in states.iter().zip(lefts.join()).zip(rights.join()) {
        law(state, left, right);
    }
}

fn side<W: Testbed, S: Send + Sync + 'static, R: Send + 'static>(
    states: &Arc<Vec<S>>,
    arrived: &Arc<W::U32>,
    act: impl Fn(&S) -> R + Send + 'static,
) -> W::JoinHandle<Vec<R>> {
    let (states, arrived) = (Arc::clone(states), Arc::clone(arrived));
    spawn::<W, _>(move || {
        let act_in_round = |(round, state)| {
            // In the model there is one round, and nothing to meet for.
            if W::RUNS {
                meet::<W>(&arrived, round);
            }
            act(state)
        };
        (0..).zip(states.iter()).map(act_in_round).collect()
    })
}

/// Lets the two sides of a race enter round `round`, counted from 0, at the same time.
///
/// All accesses are relaxed: the meeting must not order what the sides do before and after it.
fn meet<W: Testbed>(arrived: &W::U32, round: u32) {
    let both = 2 * round + 2;
    if arrived.fetch_add(1, Ordering::Relaxed) + 1 == both {
        // The other side learns of this one line transfer later. Some rounds wait about as long, so
        // that the sides are truly together in some.
        (0..round % 16).for_each(|_| W::relax());
    }
    arrived.wait_until(Ordering::Relaxed, |arrived| arrived >= both);
}
