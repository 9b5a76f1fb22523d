//! The machine's random numbers: the same for the same seed, on any host.

use rand_core::Rng as _;
use rand_pcg::Pcg64;

/// A seeded generator. Streams of one seed are independent of each other.
pub(crate) struct Rng(Pcg64);

/// The purpose of a generator. Each purpose has its own stream, so that an extra draw for one does
/// not change another.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Jitter = 1,
    Faults = 2,
    Ticks = 3,
    Schedule = 4,
    Hashes = 5,
    Luck = 6,
    Blocks = 7,
}

impl Rng {
    pub(crate) fn new(seed: u64, stream: Stream) -> Rng {
        Rng(Pcg64::new(u128::from(seed), stream as u128))
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 64 x 64 bit product costs no division. Some numbers are likelier than
        // others, by about `bound` / 2^64 of their probability. That is below 2^-14 for bounds
        // up to 18 minutes in picoseconds. Seeds of hash maps have the largest bound, 2^64 - 1: one
        // of these numbers is twice as likely.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `one_in` draws on average; never if that is 0.
    pub(crate) fn once_in(&mut self, one_in: u32) -> bool {
        one_in != 0 && self.below(u64::from(one_in)) == 0
    }

    /// `value` plus or minus up to a tenth.
    pub(crate) fn jitter(&mut self, value: u64) -> u64 {
        let tenth = value / 10;
        value - tenth + self.below(2 * tenth + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.below(1 << 30), rng.below(1 << 30), rng.below(1 << 30)]
        };
        assert_eq!(draw(7, Stream::Jitter), draw(7, Stream::Jitter));
        assert_ne!(draw(7, Stream::Jitter), draw(8, Stream::Jitter));
        assert_ne!(draw(7, Stream::Jitter), draw(7, Stream::Faults));
    }

    #[test]
    fn draws_stay_in_range_and_reach_its_ends() {
        let mut rng = Rng::new(1, Stream::Jitter);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] = true;
            assert!((90..=110).contains(&rng.jitter(100)));
            assert_eq!(rng.jitter(9), 9);
            assert!(!rng.once_in(0));
            assert!(rng.once_in(1));
        }
        assert_eq!(seen, [true; 5]);
    }
}
