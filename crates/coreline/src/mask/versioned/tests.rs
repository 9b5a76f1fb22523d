use coreline_world::Words;

use super::*;

type Count = <Native as Words>::U32;

/// Counts the values that died.
struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many values died that an outer guard had lent, when an inner one looks again in this way.
fn died_under_an_outer_guard(look: impl FnOnce(&Reader<Counted>)) -> u32 {
    let died = Arc::new(Count::new_in(0));
    let value = Versioned::new(Counted(Arc::clone(&died)));
    let reader = value.reader();
    let mut outer = reader.enter();
    let _lent = outer.get();
    value.update(Counted(Arc::clone(&died)));
    let inner = reader.enter();
    look(&reader);
    drop(inner);
    value.update(Counted(Arc::clone(&died)));
    died.load(Ordering::Relaxed)
}

#[test]
fn an_inner_guard_that_gives_up_what_an_outer_one_has_lent_is_caught() {
    assert_eq!(died_under_an_outer_guard(Reader::catch_up), 0);
    // What `catch_up` would be if it did not count guards.
    let acknowledge = |reader: &Reader<Counted>| reader.renew(reader.seat.news().unwrap());
    assert_eq!(died_under_an_outer_guard(acknowledge), 1);
}
