//! The report for people.

use std::io::{self, Write};

use coreline_topology::Quota;

use super::facts::{HugePages, Rseq};
use super::{FastPath, Report};
use crate::error::Error;
use crate::host::{Governor, Host, IdleState};
use crate::text::{Form, counted};
use crate::tree;

/// Lines as they are, however long.
const WHOLE: Form = Form { width: usize::MAX, colour: false, unicode: false };

impl Report {
    pub(crate) fn show(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        let mut text = Vec::new();
        self.show_whole(&mut text)?;
        Ok(write!(out, "{}", form.fitted(&String::from_utf8_lossy(&text)))?)
    }

    /// In lines of any length.
    fn show_whole(&self, out: &mut dyn Write) -> Result<(), Error> {
        writeln!(out, "kernel {}", self.kernel.shown())?;
        if !self.advice.is_empty() {
            writeln!(out, "\nWhat would help most")?;
            for (number, advice) in self.advice.iter().enumerate() {
                writeln!(out, "  {}. {advice}", number + 1)?;
            }
        }
        writeln!(out, "\nCPUs")?;
        tree::write(&self.found.probe.topology, out)?;
        self.show_limits(out)?;
        writeln!(out, "\nrseq")?;
        show_rseq(&self.rseq, out)?;
        let policy = self.kernel.cid_policy.unwrap_or("not known");
        writeln!(out, "  concurrency IDs of this kernel, by its release: {policy}")?;
        writeln!(out, "\nFive kernel changes: whether this kernel has them, by its release")?;
        for change in &self.changes {
            writeln!(out, "  {}", change.shown())?;
        }
        writeln!(out, "\nKernel and processor")?;
        writeln!(out, "  membarrier: {}", list(&self.membarrier.commands))?;
        let futex = if self.futex.works {
            "works"
        } else {
            "does not compare the word, or a system-call filter refuses it: threads that should \
             sleep may spin"
        };
        writeln!(out, "  futex: {futex}")?;
        show_huge_pages(&self.huge_pages, out)?;
        show_host(&self.host, out)?;
        let waits = list(&self.processor.wait_instructions);
        writeln!(out, "  instructions that wait for a store: {waits}")?;
        if !self.warnings.is_empty() {
            writeln!(out, "\nWarnings")?;
            self.show_warnings(WHOLE, out)?;
        }
        writeln!(out, "\nFast paths")?;
        self.show_fast_paths(WHOLE, out)
    }

    /// Writes two lines.
    pub(crate) fn show_in_brief(
        &self,
        first: &str,
        form: Form,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let count = |is: fn(&FastPath) -> bool| self.fast_paths.iter().filter(|it| is(it)).count();
        let on = counted(count(|path| path.on), "fast path");
        let off = count(|path| !path.on && path.remedy.is_some());
        let warnings = counted(self.warnings.len(), "warning");
        let processor = self.host.processor.as_deref().unwrap_or(std::env::consts::ARCH);
        let (kernel, counts) = (self.kernel.shown(), tree::counts(&self.found.probe.topology));
        let machine = format!("{first}{processor}, Linux {kernel}, {counts}");
        write!(out, "{}", form.paragraph("", &machine))?;
        let paths = format!("{on} on, {off} off, {warnings}: coreline doctor");
        Ok(write!(out, "{}", form.paragraph("", &paths))?)
    }

    fn show_limits(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.found.allowed {
            Ok(allowed) => {
                let count = counted(allowed.len(), "CPU");
                writeln!(out, "  this process may use: {allowed} ({count})")?;
            }
            Err(why) => writeln!(out, "  the CPUs that this process may use are not known: {why}")?,
        }
        match &self.found.cgroup {
            Ok(limits) => {
                match &limits.cpus {
                    Some(cpus) => writeln!(out, "  cgroup cpuset: {cpus}")?,
                    None => writeln!(out, "  cgroup cpuset: none that can be seen")?,
                }
                let quota = limits.quota.map_or("none that can be seen".to_owned(), quota);
                writeln!(out, "  cgroup quota: {quota}")
            }
            Err(why) => writeln!(out, "  the limits of control groups are not known: {why}"),
        }
    }

    fn show_warnings(&self, form: Form, out: &mut dyn Write) -> io::Result<()> {
        let shown = |warning: &String| form.paragraph("  warning: ", warning);
        self.warnings.iter().try_for_each(|warning| write!(out, "{}", shown(warning)))
    }

    fn show_fast_paths(&self, form: Form, out: &mut dyn Write) -> Result<(), Error> {
        for FastPath { name, on, why, remedy } in &self.fast_paths {
            let mark = match (on, remedy) {
                (true, _) => "on ",
                (false, Some(_)) => "off",
                // Nothing to gain.
                (false, None) => "-- ",
            };
            writeln!(out, "  {mark} {name}")?;
            if let Some(why) = why {
                write!(out, "{}", form.paragraph("      why: ", why))?;
            }
            if let Some(remedy) = remedy {
                write!(out, "{}", form.paragraph("      to turn it on: ", remedy))?;
            }
        }
        Ok(())
    }
}

fn quota(quota: Quota) -> String {
    let Quota { time, period } = quota;
    let threads = match quota.whole_cpus() {
        1 => "1 busy thread uses it up".to_owned(),
        threads => format!("{threads} busy threads use it up"),
    };
    format!("{:.2} CPUs ({time:?} in every {period:?}); {threads}", quota.cpus())
}

fn show_rseq(rseq: &Rseq, out: &mut dyn Write) -> io::Result<()> {
    let bytes = rseq.registered_bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
    let abi = rseq.abi.as_ref().map(|abi| format!(", {abi} ABI")).unwrap_or_default();
    writeln!(out, "  registered by: {}{bytes}{abi}", rseq.registered_by)?;
    if let Some(remedy) = rseq.abi_remedy {
        writeln!(
            out,
            "  the kernel also has the V2 ABI, which costs the kernel less work: {remedy}"
        )?;
    }
    match rseq.size {
        Some(0) => writeln!(out, "  the C library supports rseq but registers no thread")?,
        Some(size) => writeln!(out, "  the C library says that {size} bytes are in use")?,
        None => writeln!(out, "  the C library does not support rseq")?,
    }
    let Rseq { feature_size, align, .. } = rseq;
    match feature_size {
        0 => writeln!(out, "  the kernel does not say how many bytes it fills in")?,
        _ => writeln!(out, "  the kernel fills in {feature_size} bytes, aligned to {align}")?,
    }
    let how = if rseq.usable { "in rseq sections" } else { "on atomics" };
    writeln!(out, "  restartable operations run {how}; self-test: {}", rseq.self_test)?;
    match (rseq.mm_cid, &rseq.mm_cid_error) {
        (Some(cid), _) => writeln!(out, "  mm_cid: {cid} in this thread")?,
        (None, Some(why)) => writeln!(out, "  mm_cid: none: {why}")?,
        (None, None) => writeln!(out, "  mm_cid: none")?,
    }
    let slices =
        if rseq.slice_extension { "available, not used by locks of coreline" } else { "none" };
    writeln!(out, "  time slice extensions: {slices}")?;
    let switch = rseq.coreline_rseq.as_deref().unwrap_or("not set");
    writeln!(out, "  CORELINE_RSEQ: {switch}")
}

fn show_host(host: &Host, out: &mut dyn Write) -> io::Result<()> {
    let known = |it: &Option<String>| it.clone().unwrap_or_else(|| "not known".to_owned());
    writeln!(out, "  processor: {}", known(&host.processor))?;
    match &host.hypervisor {
        Some(name) => writeln!(out, "  hypervisor: {name}")?,
        None if host.hypervisor_known => writeln!(out, "  hypervisor: none that can be seen")?,
        None => writeln!(out, "  hypervisor: not known")?,
    }
    let smt = host.smt.as_deref().map_or("not known", |word| match word {
        "forceoff" => "off until the next boot",
        "notsupported" => "not supported",
        "notimplemented" => "not implemented",
        word => word,
    });
    writeln!(out, "  SMT: {smt}")?;
    let governor = |it: &Governor| match it.driver.is_empty() {
        true => format!("{} on {}", it.name, it.cpus),
        false => format!("{} ({}) on {}", it.name, it.driver, it.cpus),
    };
    let governors: Vec<String> = host.governors.iter().map(governor).collect();
    writeln!(out, "  governor: {}", or_none(&governors))?;
    let state = |it: &IdleState| match it.disabled {
        true => format!("{} (disabled)", it.name),
        false => format!("{} {} us", it.name, it.exit_us),
    };
    let states: Vec<String> = host.idle_states.iter().map(state).collect();
    writeln!(out, "  idle states, with their exit latencies: {}", or_none(&states))?;
    let balancing = match host.numa_balancing {
        None => "not known".to_owned(),
        Some(0) => "off".to_owned(),
        Some(mode) => format!("on ({mode})"),
    };
    writeln!(out, "  NUMA balancing: {balancing}")
}

fn or_none(parts: &[String]) -> String {
    if parts.is_empty() { "none that can be seen".to_owned() } else { parts.join(", ") }
}

fn show_huge_pages(huge_pages: &HugePages, out: &mut dyn Write) -> io::Result<()> {
    let transparent = huge_pages.transparent.as_deref().unwrap_or("not known");
    writeln!(out, "  transparent huge pages: {transparent}")?;
    if huge_pages.pools.is_empty() {
        writeln!(out, "  pools of huge pages: none")?;
    }
    for pool in &huge_pages.pools {
        let (size, unit) = match pool.page_kib {
            kib if kib % (1 << 20) == 0 => (kib >> 20, "GiB"),
            kib if kib % (1 << 10) == 0 => (kib >> 10, "MiB"),
            kib => (kib, "KiB"),
        };
        let (pages, free) = (pool.pages, pool.free);
        match pages {
            0 => writeln!(out, "  pool of pages of {size} {unit}: empty")?,
            _ => writeln!(out, "  pool of pages of {size} {unit}: {pages}, {free} of them free")?,
        }
    }
    Ok(())
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use coreline_world::native::{Registrar, RseqAbi};

    use super::super::{Found, made_up};
    use super::*;

    fn text(found: Found) -> String {
        fitted(found, WHOLE)
    }

    fn fitted(found: Found, form: Form) -> String {
        let mut text = Vec::new();
        Report::of(found).show(form, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// The words stay as they are; only lines are broken.
    #[test]
    fn any_machine_fits() {
        for found in [made_up::all_on, made_up::all_off, made_up::long] {
            let words = |text: &str| text.split_whitespace().collect::<String>();
            for width in [20, 40, 80, 120] {
                let text = fitted(found(), Form { width, ..WHOLE });
                let wide = text.lines().find(|line| line.chars().count() > width);
                assert_eq!(wide, None, "{width}: {text}");
                assert_eq!(words(&text), words(&fitted(found(), WHOLE)));
            }
        }
    }

    fn assert_text(found: Found, expected: &str) {
        let text = text(found);
        // What a kernel has depends on the architecture, too.
        let is_of_any = |line: &&str| !line.contains("(coreline explain ");
        let of_any: String = text.split_inclusive('\n').filter(is_of_any).collect();
        // Shown whole, as it can be read and copied.
        assert!(of_any == expected, "{text}");
    }

    #[test]
    fn a_machine_that_has_all() {
        assert_text(made_up::all_on(), include_str!("all_on.txt"));
    }

    #[test]
    fn a_machine_that_has_nothing() {
        assert_text(made_up::all_off(), include_str!("all_off.txt"));
    }

    #[test]
    fn the_other_abi_is_offered_where_the_kernel_has_it() {
        let of = |by, bytes, feature_size| {
            let mut found = made_up::all_on();
            found.probe.registered_by = Some(by);
            found.probe.rseq_abi = Some(RseqAbi::Legacy);
            found.probe.registered_bytes = bytes;
            found.probe.feature_size = feature_size;
            text(found)
        };
        let old = of(Registrar::Libc, Some(32), 33);
        assert!(old.contains("\n  registered by: libc, 32 bytes, legacy ABI\n"), "{old}");
        assert!(old.contains("\n  the kernel also has the V2 ABI, which costs"), "{old}");
        assert!(old.contains(": use glibc 2.41 or later: it registers"), "{old}");
        let ours = of(Registrar::Coreline, None, 33);
        assert!(ours.contains("\n  registered by: coreline, legacy ABI\n"), "{ours}");
        assert!(ours.contains("coreline itself registers only 32 bytes\n"), "{ours}");
        assert!(!of(Registrar::Libc, Some(32), 28).contains("V2"));
    }

    #[test]
    fn limits_and_warnings() {
        let text = text(made_up::quota(1_500, 1_000));
        let line = "  cgroup quota: 1.50 CPUs (1.5ms in every 1ms); 2 busy threads use it up\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("\nWarnings\n  warning: the quota is the time of 1.50"), "{text}");
    }

    #[test]
    fn one_of_each_has_no_plural() {
        let mut found = made_up::all_on();
        found.allowed = Ok("7".parse().unwrap());
        let text = text(found);
        assert!(text.contains("\n  this process may use: 7 (1 CPU)\n"), "{text}");
        let mut report = Report::of(made_up::all_on());
        let brief = |report: &Report| {
            let mut text = Vec::new();
            report.show_in_brief("this is ", Form::plain(), &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        assert!(brief(&report).contains("\n6 fast paths on, 0 off, 0 warnings: "));
        report.fast_paths.truncate(1);
        report.warnings.push("one".to_owned());
        assert!(brief(&report).contains("\n1 fast path on, 0 off, 1 warning: "));
    }

    #[test]
    fn what_is_not_known_of_the_host_is_said_and_the_kernels_words_are_put_into_ours() {
        for (word, shown) in [
            ("on", "on"),
            ("forceoff", "off until the next boot"),
            ("notsupported", "not supported"),
            ("notimplemented", "not implemented"),
        ] {
            let mut found = made_up::all_on();
            found.host.smt = Some(word.to_owned());
            let text = text(found);
            assert!(text.contains(&format!("\n  SMT: {shown}\n")), "{text}");
        }
        let mut found = made_up::all_on();
        found.host.hypervisor_known = false;
        let text = text(found);
        assert!(text.contains("\n  hypervisor: not known\n"), "{text}");
    }

    #[test]
    fn one_page_size_or_another() {
        let mut found = made_up::all_on();
        for (kib, shown) in [(64, "64 KiB"), (32 << 10, "32 MiB"), (16 << 20, "16 GiB")] {
            found.probe.huge_pools[0].page_kib = kib;
            let mut text = Vec::new();
            show_huge_pages(&HugePages::of(&found.probe), &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(&format!("pool of pages of {shown}: 8, 5")), "{text}");
        }
    }

    #[test]
    fn each_kernel_change_has_a_line_by_the_release() {
        let of = |release: &str| {
            let mut found = made_up::all_on();
            found.probe.kernel = release.to_owned();
            text(found)
        };
        for (release, has) in [("6.18.4", "yes"), ("6.12.1", "no"), ("7.1", "newer"), ("", "?")] {
            let line =
                format!("recent concurrency IDs (2024): {has} (coreline explain recent-ids)");
            assert!(of(release).contains(&line), "{release}: {}", of(release));
        }
    }
}
