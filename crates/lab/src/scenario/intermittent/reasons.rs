//! Why simulated figures are off the published ones, as far as that is understood.

use crate::kernel::Scan;
use crate::scenario::Variant;

/// From which delay on the published times have a residue that the distance of the areas does not
/// explain: at 200 ms they are up to 25 times those at 10 ms, for the same lines at the same
/// distance.
pub(crate) const ASLEEP_MS: u64 = 100;

/// What a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// A variant's time of a burst.
    Time,
    /// A variant's time over that of `cpu-id`.
    OverCpuId,
    /// The time of `first-fit` over that of `recent`.
    Speedup,
}

/// Why a simulated figure is off the published one. `above`: because it is too large.
pub(crate) fn why_off(
    quantity: Quantity,
    variant: Variant,
    delay_ms: u64,
    scan: Scan,
    above: bool,
) -> &'static str {
    let asleep = delay_ms >= ASLEEP_MS;
    match (quantity, variant) {
        (Quantity::Time, Variant::FirstFit) if above => {
            "two things decide this figure and are not known: how often references expire (a tick \
             has to hit a running thread, and their age goes by a clock that stands still on an \
             idle CPU; with --scan switch a scan runs as soon as the kernel's limit of 100 ms \
             allows), and how long a moved area takes, which is set by how many ownership requests \
             overlap, an assumption"
        }
        (Quantity::Time, Variant::FirstFit) if scan == Scan::Tick => {
            "scans are rather too seldom here: ticks have to hit a running thread, and a simulated \
             burst lasts no longer than its cache misses and the switch to its thread, since the \
             execution of other code is not modelled; --scan switch is as often as can be"
        }
        (Quantity::Time, Variant::FirstFit) if asleep => {
            "part of the published time is not coherence: at 10 ms the same lines come over the \
             same distance for less; sleep states, which a machine that idles for so long enters, \
             are not modelled, so that even a time of the right size is no evidence"
        }
        (Quantity::Time, _) if asleep => {
            "the area did not move, so 256 cache hits are all that a burst costs here; the \
             published times contain what is not modelled: sleep states, which a machine that \
             idles for 200 ms enters, cold TLB and page walks, a clock that ramps up after idling"
        }
        (Quantity::Time, _) => {
            "256 cache hits are all that a burst costs here if its area did not move; the \
             published times contain what is not modelled: cold TLB and page walks, a clock that \
             ramps up after idling"
        }
        (Quantity::OverCpuId, Variant::Recent) => {
            "recent and cpu-id touch the same lines here, each CPU those of its own area; what \
             sets the published times of the two apart has no cause in the indexes, and is not \
             known"
        }
        (Quantity::OverCpuId | Quantity::Speedup, _) if scan == Scan::Tick => {
            "the quotient inherits what its two times lack (that of an area that did not move \
             lacks most, which makes the quotient too large), and how often ticks hit a running \
             thread and so ask for a scan, which depends on code whose execution is not modelled"
        }
        (Quantity::OverCpuId | Quantity::Speedup, _) => {
            "the quotient inherits what its two times lack; that of an area that did not move \
             lacks most, which makes the quotient too large, and first-fit's lacks the sleep \
             states of long delays and depends on how often references expire"
        }
    }
}

/// What has to be known about a simulated figure that is near the published one.
pub(crate) fn why_reached(quantity: Quantity, variant: Variant) -> Option<&'static str> {
    match (quantity, variant) {
        (Quantity::Time, Variant::FirstFit) => Some(
            "consistent, and no prediction: the size of this time is set almost alone by how many \
             ownership requests overlap, which is an assumption of the machine file",
        ),
        _ => None,
    }
}
