//! The constructors that counters and types built from counters have in common.

/// Gives a type `new` and `indexed_by`, for this machine, and `new_in`, for any world. These call
/// the type's `from_pool`, with the argument that it takes beside the pool.
macro_rules! constructors {
    ([$($Generics:tt)*] $Type:ident<$($Param:ident),*>, $what:literal $(, $arg:ident: $Of:ty)?) => {
        impl<$($Generics)*> $Type<$($Param),*> {
            #[doc = concat!(
                "Creates ", $what, ", indexed by CPU number, from the process's global pool."
            )]
            ///
            /// # Errors
            ///
            /// Natively, the call never fails. For other worlds, see [`new_in`](Self::new_in).
            pub fn new($($arg: $Of)?) -> Result<Self, Lacking> {
                Self::new_in(IndexBy::Cpu $(, $arg)?)
            }

            #[doc = concat!(
                "Creates ", $what, ", like [`new`](Self::new), with slots indexed by `by`."
            )]
            ///
            /// # Errors
            ///
            /// The same errors as for [`new_in`](Self::new_in).
            pub fn indexed_by(by: IndexBy $(, $arg: $Of)?) -> Result<Self, Lacking> {
                Self::new_in(by $(, $arg)?)
            }
        }

        impl<$($Generics)* W: World> $Type<$($Param,)* W> {
            #[doc = concat!(
                "Creates ", $what, " in world `W`, with slots indexed by `by`, from the world's ",
                "global pool."
            )]
            ///
            /// # Errors
            ///
            /// [`Lacking`] if the machine has no such index.
            pub fn new_in(by: IndexBy $(, $arg: $Of)?) -> Result<Self, Lacking> {
                Ok(Self::from_pool(&PerCpuPool::global_in(by)? $(, $arg)?))
            }
        }
    };
}

pub(super) use constructors;
