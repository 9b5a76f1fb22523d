//! The variants that are not modelled here: no lock, std's, and those of `coreline`.

use coreline::lock::{Near, RawBiasedRwLock, RawRwLock, ReadMostly, SpinningReaders};
use coreline_sim::Sim;
use coreline_world::{Lacking, Native, Testbed};

use super::ReadWrite;
use crate::RunError;

/// Implements what locks that share nothing have in common.
macro_rules! shares_nothing {
    () => {
        type Shared = ();

        fn share(_: usize) {}
    };
}
pub(super) use shares_nothing;

/// No lock.
pub struct Open;

impl<W: Testbed> ReadWrite<W> for Open {
    const EXCLUDES: bool = false;

    shares_nothing!();

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        Ok(Open)
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        section();
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        section();
    }
}

/// A world with std's lock.
pub trait Std: Testbed {
    /// The lock.
    type Lock: ReadWrite<Self>;
}

impl Std for Native {
    type Lock = std::sync::RwLock<()>;
}

impl Std for Sim {
    type Lock = coreline_sim::sync::RwLock<()>;
}

macro_rules! std_lock {
    ($lock:ty, $world:ty) => {
        impl ReadWrite<$world> for $lock {
            shares_nothing!();

            fn new_in((): &(), _: usize) -> Result<Self, RunError> {
                Ok(<$lock>::new(()))
            }

            fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
                let _guard = <$lock>::read(self);
                section();
            }

            fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
                let _guard = <$lock>::write(self);
                section();
            }
        }
    };
}

std_lock!(std::sync::RwLock<()>, Native);
std_lock!(coreline_sim::sync::RwLock<()>, Sim);

impl<W: Testbed> ReadWrite<W> for RawRwLock<Near, SpinningReaders, W> {
    shares_nothing!();

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        Ok(RawRwLock::new_in())
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        RawRwLock::read(self);
        section();
        // SAFETY: taken above, and freed once.
        unsafe { self.unlock_read() };
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        RawRwLock::write(self);
        section();
        // SAFETY: taken above, and freed once.
        unsafe { self.unlock_write() };
    }
}

impl<W: Testbed> ReadWrite<W> for ReadMostly<(), W> {
    shares_nothing!();

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        let lacks = |error| RunError::Lack(format!("a lock has no memory per CPU: {error}"));
        ReadMostly::new_in(coreline::IndexBy::Cpu, ()).map_err(lacks)
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        let _guard = ReadMostly::read(self);
        section();
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        let _guard = ReadMostly::write(self).unwrap_or_else(|lacking| refused(&lacking));
        section();
    }
}

impl<W: Testbed> ReadWrite<W> for RawBiasedRwLock<W> {
    shares_nothing!();

    fn new_in((): &(), _: usize) -> Result<Self, RunError> {
        Ok(RawBiasedRwLock::new_in())
    }

    fn read(&self, (): &(), _: usize, section: impl FnOnce()) {
        RawBiasedRwLock::read(self);
        section();
        // SAFETY: taken above, and freed once.
        unsafe { self.unlock_read() };
    }

    fn write(&self, (): &(), _: usize, section: impl FnOnce()) {
        RawBiasedRwLock::write(self).unwrap_or_else(|lacking| refused(&lacking));
        section();
        // SAFETY: taken above, and freed once.
        unsafe { self.unlock_write() };
    }
}

fn refused(lacking: &Lacking) -> ! {
    panic!("{lacking}");
}
