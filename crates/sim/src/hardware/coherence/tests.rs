use super::*;
use crate::hardware::contention::{Actor, Waiting};
use crate::hardware::spec::Spec;

const NODE: NodeId = NodeId::new(0);
const FAR: NodeId = NodeId::new(1);

/// A directory with two lines.
fn directory() -> Directory {
    let spec = Spec::preset("epyc-9654-2s").unwrap();
    let mut directory = Directory::new(spec.topology(), spec.costs(), spec.distances());
    assert_eq!([directory.intern(500), directory.intern(7), directory.intern(500)], [0, 1, 0]);
    directory
}

/// The source of an access, which then happens.
fn touch(d: &mut Directory, core: u32, node: NodeId, access: Access) -> Origin {
    let from = d.source(0, core, node, access).from;
    d.transfer(0, core, node, access);
    from
}

#[test]
fn a_private_line_is_fetched_once_and_written_in_silence() {
    let mut d = directory();
    assert_eq!(touch(&mut d, 0, NODE, Access::Load), Origin::LocalMemory);
    assert_eq!(touch(&mut d, 0, NODE, Access::Load), Origin::Private);
    assert_eq!(touch(&mut d, 0, NODE, Access::Store), Origin::Private);
}

#[test]
fn a_written_line_comes_from_its_owner_by_distance() {
    for (other, from) in [
        (7, Origin::SameCache),
        (8, Origin::SameNode),
        (95, Origin::SameNode),
        (96, Origin::OtherSocket),
    ] {
        let mut d = directory();
        touch(&mut d, 0, NODE, Access::Store);
        assert_eq!(touch(&mut d, other, NODE, Access::Load), from);
        assert_eq!(touch(&mut d, other, NODE, Access::Load), Origin::Private);
        assert_eq!(touch(&mut d, 0, NODE, Access::Store), from, "takes it back");
        assert_eq!(d.source(0, other, NODE, Access::Load).from, from, "was invalidated");
    }
}

#[test]
fn a_read_takes_the_nearest_copy_and_a_write_waits_for_the_farthest() {
    let mut d = directory();
    for core in [0, 8, 100] {
        touch(&mut d, core, NODE, Access::Load);
    }
    assert_eq!(d.source(0, 1, NODE, Access::Load).from, Origin::CleanSameCache);
    assert_eq!(d.source(0, 16, NODE, Access::Load).from, Origin::SameNode);
    assert_eq!(d.source(0, 0, NODE, Access::Update).from, Origin::OtherSocket);
}

#[test]
fn a_placement_decides_before_the_first_touch() {
    let mut d = directory();
    let homes = |d: &mut Directory, lines: &[u64]| -> Vec<Option<u32>> {
        let home = |&line| {
            let line = d.intern(line);
            Some(d.entries[line].home).filter(|&home| home != NONE)
        };
        lines.iter().map(home).collect()
    };
    d.set_home(100, 10, Some(NodeId::new(0)));
    d.set_home(103, 4, Some(NodeId::new(1)));
    d.set_home(108, 10, None);
    assert_eq!(homes(&mut d, &[99, 100, 103, 107]), [None, Some(0), Some(1), Some(0)]);
    assert_eq!(homes(&mut d, &[108, 109]), [None, None]);
    // Once touched, a line stays.
    d.set_home(99, 3, Some(NodeId::new(1)));
    assert_eq!(homes(&mut d, &[99, 100, 101, 102]), [None, Some(0), Some(1), Some(0)]);
}

#[test]
fn the_first_touch_decides_the_home() {
    let mut d = directory();
    d.entries[0].home = NODE.get();
    assert_eq!(d.source(0, 100, FAR, Access::Load).from, Origin::RemoteMemory);
    assert_eq!(d.source(0, 0, NODE, Access::Load).from, Origin::LocalMemory);
    assert_eq!(d.source(1, 100, FAR, Access::Load).from, Origin::LocalMemory);
}

#[test]
fn holders_beyond_one_word_are_seen() {
    let mut d = directory();
    for core in [0, 63, 64, 191] {
        touch(&mut d, core, NODE, Access::Load);
    }
    assert_eq!(d.holders(0).collect::<Vec<_>>(), [0, 63, 64, 191]);
}

#[test]
fn a_read_of_what_was_written_takes_ownership_and_the_next_leaves_copies() {
    let mut d = directory();
    touch(&mut d, 0, NODE, Access::Store);
    assert_eq!(touch(&mut d, 1, NODE, Access::Load), Origin::SameCache);
    assert_eq!(d.source(0, 1, NODE, Access::Update).from, Origin::Private, "it may write");
    // Nothing was written since: both have a copy, and neither may.
    assert_eq!(touch(&mut d, 0, NODE, Access::Load), Origin::SameCache);
    assert_eq!(touch(&mut d, 1, NODE, Access::Load), Origin::Private);
    assert_eq!(d.source(0, 1, NODE, Access::Update).from, Origin::SameCache);
}

#[test]
fn a_line_stays_with_its_core_until_then_and_for_an_access_that_has_begun() {
    let mut d = directory();
    touch(&mut d, 0, NODE, Access::Update);
    d.occupy(0, 0, 100_000, 112_000);
    assert_eq!(d.free_at(0, 1), 112_000);
    assert_eq!(d.free_at(0, 0), 100_000, "from a sibling hardware thread it is not kept");
    // Whoever waits: the core goes on with the line, and then loses it to the request.
    d.contention_mut(0).waiting.push_back(Waiting { actor: Actor::Thread(1), core: 1 });
    assert!(d.has(0, 0, Access::Update, 111_999));
    assert!(!d.has(0, 0, Access::Update, 112_000));
    // An access that began before that is not cut in two.
    d.used(0, 0, true, 113_000);
    assert_eq!(d.free_at(0, 1), 113_000);
}
