//! [`Track`]: the object to which a [`Cell`](crate::Cell) reports its accesses.

/// The world's view of one piece of plain data, to which a [`Cell`](crate::Cell) reports.
pub trait Track: Send + Sync + Sized {
    /// A guard for a read, which ends when the guard drops.
    type Reading;
    /// A guard for a write, which ends when the guard drops.
    type Writing;

    /// Creates a tracker in the current machine or model execution.
    fn new_in() -> Self;

    /// Begins a read of the `len` bytes at `at`.
    fn reading(&self, at: *const u8, len: usize) -> Self::Reading;

    /// Begins a write, or a read and a write, of the `len` bytes at `at`.
    fn writing(&self, at: *const u8, len: usize) -> Self::Writing;
}
