//! CPU sets against the standard library's sets, and their text form.

use std::collections::BTreeSet;

use coreline_topology::{CpuId, CpuListProblem, CpuSet, MAX_CPUS};
use proptest::prelude::*;

fn set(numbers: impl IntoIterator<Item = u32>) -> CpuSet {
    numbers.into_iter().map(CpuId::new).collect()
}

#[test]
fn every_width_holds_all_its_cpus() {
    for width in [1, 63, 64, 65, 384, 4096] {
        let full = set(0..width);
        assert_eq!(full.len(), width as usize);
        assert_eq!(full.first(), Some(CpuId::new(0)));
        assert_eq!(full.last(), Some(CpuId::new(width - 1)));
        assert!(!full.contains(CpuId::new(width)));
        assert!(full.iter().map(CpuId::get).eq(0..width));

        let mut drained = full.clone();
        for cpu in full.iter() {
            assert!(drained.remove(cpu));
            assert!(!drained.remove(cpu));
        }
        assert!(drained.is_empty());
        assert_eq!(drained, CpuSet::new());
    }
}

#[test]
fn sets_that_shrank_equal_sets_that_never_grew() {
    let mut shrunk = set([3, 4095]);
    shrunk.remove(CpuId::new(4095));
    assert_eq!(shrunk, set([3]));
    assert_eq!(set([3, 4095]).intersection(&set([3, 4094])), set([3]));
}

#[test]
fn lists_read_and_print_as_the_kernel_writes_them() {
    for (list, members, printed) in [
        ("", vec![], ""),
        ("\n", vec![], ""),
        ("0\n", vec![0], "0"),
        ("0-3,8\n", vec![0, 1, 2, 3, 8], "0-3,8"),
        ("8,0-1,1-3", vec![0, 1, 2, 3, 8], "0-3,8"),
        ("62-65,67", vec![62, 63, 64, 65, 67], "62-65,67"),
        ("65535", vec![65535], "65535"),
    ] {
        let parsed: CpuSet = list.parse().unwrap();
        assert_eq!(parsed, set(members), "{list:?}");
        assert_eq!(parsed.to_string(), printed, "{list:?}");
    }
}

#[test]
fn errors_name_the_part_that_is_wrong() {
    use CpuListProblem::{NotANumber, Reversed, TooLarge};
    for (list, part, problem) in [
        ("0-3,x", "x", NotANumber),
        ("0,,2", "", NotANumber),
        ("0-,2", "0-", NotANumber),
        ("1-2-3", "1-2-3", NotANumber),
        ("+1", "+1", NotANumber),
        ("0, 1", " 1", NotANumber),
        ("0-8:2/4", "0-8:2/4", NotANumber),
        ("1,7-4", "7-4", Reversed),
        ("0-4294967295", "0-4294967295", TooLarge),
        ("65536", "65536", TooLarge),
        ("99999999999999999999", "99999999999999999999", TooLarge),
    ] {
        let error = list.parse::<CpuSet>().unwrap_err();
        assert_eq!((error.part.as_str(), error.problem), (part, problem), "{list:?}");
    }
    let error = "0-3,x".parse::<CpuSet>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"x\" in the CPU list is neither a number nor a range; \
         write numbers and ranges as in \"0-3,8\""
    );
}

/// Sets of a few CPUs, near each other and near word borders or anywhere.
fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    proptest::collection::btree_set(prop_oneof![0..200u32, 0..MAX_CPUS], 0..60)
}

proptest! {
    #[test]
    fn agrees_with_the_standard_set(a in members(), b in members()) {
        let (left, right) = (set(a.iter().copied()), set(b.iter().copied()));
        prop_assert_eq!(left.len(), a.len());
        prop_assert_eq!(left.is_empty(), a.is_empty());
        prop_assert!(left.iter().map(CpuId::get).eq(a.iter().copied()));
        prop_assert_eq!(left.first().map(CpuId::get), a.first().copied());
        prop_assert_eq!(left.last().map(CpuId::get), a.last().copied());
        prop_assert_eq!(left.union(&right), set(a.union(&b).copied()));
        prop_assert_eq!(left.intersection(&right), set(a.intersection(&b).copied()));
        prop_assert_eq!(left == right, a == b);

        let mut changed = left.clone();
        for &cpu in &b {
            prop_assert_eq!(changed.insert(CpuId::new(cpu)), !a.contains(&cpu));
        }
        for &cpu in &a {
            prop_assert!(changed.remove(CpuId::new(cpu)));
        }
        prop_assert_eq!(changed, set(b.difference(&a).copied()));
    }

    #[test]
    fn printing_then_reading_gives_the_set_back(cpus in members()) {
        let cpus = set(cpus);
        prop_assert_eq!(cpus.to_string().parse::<CpuSet>(), Ok(cpus));
    }

    #[test]
    fn any_text_is_a_set_or_an_error(list in prop_oneof![".*", "[0-9,-]{0,16}"]) {
        if let Err(error) = list.parse::<CpuSet>() {
            prop_assert!(list.trim().split(',').any(|part| part == error.part));
        }
    }
}
