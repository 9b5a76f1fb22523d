//! Blocks of arenas: where they are, and how long.

use super::*;

fn allocate_in(arena: &Arena, size: usize, align: usize) -> (*mut u8, Layout) {
    let layout = Layout::from_size_align(size, align).unwrap();
    let _inside = arena.entry().enter();
    // SAFETY: the size is not zero.
    (unsafe { Allocator.alloc(layout) }, layout)
}

fn free_in(arena: Option<&Arena>, (block, layout): (*mut u8, Layout)) {
    let _inside = arena.map(|arena| arena.entry().enter());
    // SAFETY: allocated by `allocate_in` with this layout and freed once.
    unsafe { Allocator.dealloc(block, layout) };
}

#[test]
fn the_same_requests_get_the_same_offsets() {
    let offsets = || {
        let arena = Arena::new(None).unwrap();
        let sizes = [(1, 1), (64, 64), (24, 8), (5000, 8), (1 << 20, 4096), (100, 128)];
        let blocks = sizes.map(|(size, align)| allocate_in(&arena, size, align));
        let offsets = blocks.map(|(block, layout)| {
            assert!(block.addr().is_multiple_of(layout.align()));
            arena.offset(block.addr()).unwrap()
        });
        blocks.into_iter().for_each(|block| free_in(Some(&arena), block));
        offsets
    };
    assert_eq!(offsets(), offsets());
}

#[test]
fn blocks_are_disjoint_and_used_again() {
    let arena = Arena::new(None).unwrap();
    let blocks: Vec<_> = (1..200).map(|n| allocate_in(&arena, n * 7, 8)).collect();
    let mut ranges: Vec<_> =
        blocks.iter().map(|(block, layout)| (block.addr(), layout.size())).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));

    let again = blocks[10];
    free_in(Some(&arena), again);
    assert_eq!(allocate_in(&arena, again.1.size(), 8).0, again.0);
}

#[test]
fn a_small_block_of_large_alignment_takes_its_size() {
    let arena = Arena::new(None).unwrap();
    let blocks: Vec<_> = (0..100).map(|_| allocate_in(&arena, 64, 64)).collect();
    assert!(blocks.windows(2).all(|pair| pair[0].0.addr() + 64 == pair[1].0.addr()));
}

#[test]
fn a_block_changes_its_size_and_owner_and_keeps_its_bytes() {
    let arena = Arena::new(None).unwrap();
    let (mut block, mut layout) = allocate_in(&arena, 1, 8);
    // SAFETY: live, and one byte long.
    unsafe { block.write(7) };
    for size in [10, 100, 5000, 3] {
        for inside in [true, false, false] {
            let _inside = inside.then(|| arena.entry().enter());
            // SAFETY: the block is live and has this layout, now and after.
            unsafe {
                block = Allocator.realloc(block, layout, size);
                layout = Layout::from_size_align_unchecked(size, 8);
                assert_eq!(block.read(), 7);
            }
            assert_eq!(arena.offset(block.addr()).is_some(), inside);
        }
    }
    free_in(None, (block, layout));
}

#[test]
fn a_zeroed_block_is_zero_though_used_before() {
    let arena = Arena::new(None).unwrap();
    for inside in [true, false] {
        let _inside = inside.then(|| arena.entry().enter());
        let layout = Layout::from_size_align(100, 8).unwrap();
        for _ in 0..2 {
            // SAFETY: the size is not zero; the block is written and read within it and freed
            // once.
            unsafe {
                let block = Allocator.alloc_zeroed(layout);
                assert!((0..100).all(|byte| block.add(byte).read() == 0));
                block.write_bytes(1, 100);
                Allocator.dealloc(block, layout);
            }
        }
    }
}

#[test]
fn a_block_may_outlive_its_machine_and_its_thread() {
    let arena = Arena::new(None).unwrap();
    let (block, layout) = allocate_in(&arena, 4096, 8);
    drop(arena);
    // SAFETY: still live: it was not freed.
    unsafe { block.write_bytes(7, 4096) };
    let address = block.expose_provenance();
    std::thread::spawn(move || {
        let block = ptr::with_exposed_provenance_mut(address);
        assert!(arena_of(block).is_some());
        free_in(None, (block, layout));
        assert!(arena_of(block).is_none());
    })
    .join()
    .unwrap();
}

#[test]
fn the_host_promises_no_memory_for_an_arena() {
    let read = |path| std::fs::read_to_string(path).unwrap();
    if read("/proc/sys/vm/overcommit_memory").trim() == "2" {
        // This host promises all that is mapped.
        return;
    }
    let arena = Arena::new(None).unwrap();
    // The lines of a mapping begin with its addresses, and end with its flags.
    let mut maps = String::new();
    for line in read("/proc/self/smaps").lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let bounds = range.map(|(begin, end)| {
            [begin, end].map(|bound| usize::from_str_radix(bound, 16).unwrap_or(0))
        });
        match (bounds, line.strip_prefix("VmFlags:")) {
            (Some([begin, end]), _) => {
                let found = (begin..end).contains(&arena.address(0));
                maps = if found { line.to_owned() } else { String::new() };
            }
            (None, Some(flags)) if !maps.is_empty() => {
                // "No swap space is reserved", in proc(5)'s words.
                return assert!(flags.split(' ').any(|flag| flag == "nr"), "{maps}:{flags}");
            }
            _ => {}
        }
    }
    panic!("the arena is in no mapping");
}

#[test]
fn a_full_arena_falls_back_to_the_system() {
    let arena = Arena::new(None).unwrap();
    let huge = allocate_in(&arena, ARENA, 8);
    assert!(!huge.0.is_null());
    assert_eq!(arena.offset(huge.0.addr()), None);
    free_in(Some(&arena), huge);
}
