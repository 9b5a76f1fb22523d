//! The beginning of each function: its arguments, checked.

/// The inside of a function, behind the boundary. Each argument that it lists is checked before
/// the block runs: `handle x` becomes the handle's value, `lock x` the raw lock, `shared x` a
/// value to read, `out x` the place for a result, and `place x` an address that is checked alone.
/// The block returns an outcome, or nothing if it succeeds.
macro_rules! with {
    ([$($arguments:tt)*] $body:block) => {
        $crate::boundary::boundary(|| {
            $crate::with::with!(@ $($arguments)* ,);
            $crate::boundary::End::outcome($body)
        })
    };
    (@ $(,)?) => {};
    (@ place $name:ident, $($rest:tt)*) => {
        let $name = $crate::boundary::place($name)?;
        $crate::with::with!(@ $($rest)*);
    };
    (@ $kind:ident $name:ident, $($rest:tt)*) => {
        // SAFETY: the caller of the C function promises this: "Pointers" in the crate's
        // documentation, which is the manual page coreline(7).
        let $name = unsafe { $crate::with::with!(# $kind)($name) }?;
        $crate::with::with!(@ $($rest)*);
    };
    (# handle) => { $crate::handle::get };
    (# lock) => { $crate::boundary::lock };
    (# shared) => { $crate::boundary::shared };
    (# out) => { $crate::boundary::out };
}

pub(crate) use with;
