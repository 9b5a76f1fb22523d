//! The laws, in the worlds of this crate.

mod native {
    use coreline_world::conformance::{threads, words};
    use coreline_world::{Native, conformance_tests};

    conformance_tests!(Native, |law| law());

    #[test]
    fn constants_make_fresh_words() {
        words::constants_make_fresh_words::<Native>();
    }

    #[test]
    fn a_join_raises_the_panic() {
        threads::a_join_raises_the_panic::<Native>();
    }
}

mod model {
    use coreline_world::conformance_tests;
    use coreline_world::model::{Checker, Model};

    conformance_tests!(Model, |law| Checker::new().preemption_bound(3).check(law));
}
