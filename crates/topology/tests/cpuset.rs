//! CPU sets against the standard library's sets, and their text form.

use std::collections::BTreeSet;

use coreline_topology::{CpuId, CpuListProblem, CpuSet, MAX_CPUS};
use proptest::prelude::*;

fn set(numbers: impl IntoIterator<Item = u32>) -> CpuSet {
    numbers.into_iter().map(CpuId::new).collect()
}

/// Widths at and around word borders, and of machines.
const WIDTHS: [u32; 6] = [1, 63, 64, 65, 384, 4096];

#[test]
fn every_width_holds_all_its_cpus() {
    for width in WIDTHS {
        let full = set(0..width);
        assert_eq!(full.len(), width as usize);
        assert_eq!(full.first(), Some(CpuId::new(0)));
        assert_eq!(full.last(), Some(CpuId::new(width - 1)));
        assert!(!full.contains(CpuId::new(width)));
        assert!(full.iter().map(CpuId::get).eq(0..width));
        assert_eq!(
            full.to_string(),
            if width == 1 { "0".into() } else { format!("0-{}", width - 1) }
        );
        assert_eq!(full.to_string().parse(), Ok(full.clone()));

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

/// Sets of a machine of one of the widths: sparse, dense, and with its last CPU.
fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    let of_width = |width: u32| {
        let some = proptest::collection::btree_set(0..width, 0..60);
        let most =
            some.clone().prop_map(move |gone| (0..width).filter(|n| !gone.contains(n)).collect());
        let with_last = some.clone().prop_map(move |mut cpus| {
            cpus.insert(width - 1);
            cpus
        });
        prop_oneof![some, most, with_last]
    };
    proptest::sample::select(WIDTHS.to_vec()).prop_flat_map(of_width)
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
        let both = left.intersection(&right);
        prop_assert_eq!(&both, &set(a.intersection(&b).copied()));
        prop_assert!(both.is_subset(&left) && both.is_subset(&right));
        prop_assert_eq!(left.is_subset(&right), a.is_subset(&b));
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
    fn ranges_are_their_members(low in 0..MAX_CPUS, length in 0..300u32, other in members()) {
        let high = (low + length).min(MAX_CPUS - 1);
        let mut expected = set(low..=high);
        prop_assert_eq!(format!("{low}-{high}").parse(), Ok(expected.clone()));
        let other = set(other);
        expected = expected.union(&other);
        if !other.is_empty() {
            prop_assert_eq!(format!("{other},{low}-{high}").parse(), Ok(expected));
        }
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
