//! The result as data: schema `coreline.rivals/1`.

use serde::Serialize;

use crate::class::{Class, Params, Role};

/// The result.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) schema: &'static str,
    pub(crate) rows: &'a [Row],
}

impl<'a> Report<'a> {
    pub(crate) fn new(rows: &'a [Row]) -> Report<'a> {
        Report { schema: "coreline.rivals/1", rows }
    }
}

/// One candidate at one thread count.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) class: Class,
    pub(crate) name: String,
    pub(crate) ours: bool,
    pub(crate) role: Role,
    pub(crate) threads: usize,
    pub(crate) params: Params,
    /// Nanoseconds per operation, of CPU time or (where there are shares) of all threads' time;
    /// `null` if no sample was kept.
    pub(crate) ns_median: Option<f64>,
    pub(crate) ns_min: Option<f64>,
    /// How many samples were kept.
    pub(crate) samples: usize,
    /// How many were thrown away: other load disturbed them.
    pub(crate) discarded: u32,
    /// The share of the unluckiest thread, as a part of the luckiest thread's; `null` if each does
    /// the same by design.
    pub(crate) share_min_max: Option<f64>,
    /// The part of the records that were lost, of 1; `null` of what is no log that may lose some.
    pub(crate) lost: Option<f64>,
    /// How many threads of another process computed meanwhile.
    pub(crate) beside: usize,
    /// Nanoseconds of the whole process's CPU time per operation; `null` without such threads,
    /// where samples are too short for it.
    pub(crate) cpu_ns_median: Option<f64>,
    /// The range of the median of many more samples, with 95 % confidence; `None` for too few
    /// samples.
    #[serde(skip)]
    pub(crate) ns_interval: Option<(f64, f64)>,
    /// The form that it belongs to, by title.
    #[serde(skip)]
    pub(crate) form: &'static str,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_keys_are_those_of_the_schema() {
        let row = Row {
            class: Class::Counters,
            name: "plain add, hot".to_owned(),
            ours: false,
            role: Role::Floor,
            threads: 2,
            params: Params::default(),
            ns_median: Some(0.5),
            ns_min: None,
            samples: 21,
            discarded: 3,
            share_min_max: None,
            lost: None,
            beside: 0,
            cpu_ns_median: None,
            ns_interval: None,
            form: "hot",
        };
        let params = json!({
            "cs_ns": null, "out_ns": null, "batch": null, "gap_us": null, "read_pct": null
        });
        assert_eq!(
            serde_json::to_value(Report::new(&[row])).unwrap(),
            json!({
                "schema": "coreline.rivals/1",
                "rows": [{
                    "class": "counters", "name": "plain add, hot", "ours": false, "role": "floor",
                    "threads": 2, "params": params, "ns_median": 0.5, "ns_min": null,
                    "samples": 21, "discarded": 3, "share_min_max": null, "lost": null,
                    "beside": 0, "cpu_ns_median": null,
                }],
            })
        );
    }
}
