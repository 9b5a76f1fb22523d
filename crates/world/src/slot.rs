//! [`Slot`]: the types that slots of per-CPU memory may hold.

/// A type that a slot of per-CPU memory may hold.
///
/// # Safety
///
/// Suppose that one value can return a reference to an object inside itself. Then every value must
/// have a live object of that type at the same offset, from its creation until it is dropped. So
/// words and arrays and structs of words are allowed. Enums and unions are not allowed, nor are
/// types that contain one (`Option`, `OnceLock`, a vector with room inside). A section computes the
/// address of a field from the address of the same field in another slot.
pub unsafe trait Slot: Send + Sync + 'static {}

// SAFETY: every element of an array lies at the same offset in each value.
unsafe impl<T: Slot, const N: usize> Slot for [T; N] {}
