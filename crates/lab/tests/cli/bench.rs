//! The verb `bench`.

use crate::json;

#[test]
fn bench_says_how_fast_the_simulator_is() {
    let result = json(&["bench", "sim", "--quick", "--json"]);
    assert_eq!(result["schema"], "coreline.bench.sim/1");
    let rows = result["rows"].as_array().unwrap();
    let cpus: Vec<_> = rows.iter().map(|row| row["coroutines"].as_u64().unwrap()).collect();
    assert_eq!(cpus, [1, 2, 192, 384, 384, 4096]);
    for row in rows {
        for figure in ["accesses", "accesses_full", "switches"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}
