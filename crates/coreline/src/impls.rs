//! Impls that many types have, and that no derive can write: a derive demands `Debug` and `Default`
//! of the world, too, which has neither.

/// `Debug` of a type, with its generic parameters in brackets: a struct of the named fields, with
/// `..` if it has more, or a tuple of one field. `as` names the value.
macro_rules! impl_debug {
    ([$($Generics:tt)*] $Type:ident $(<$($Arg:tt),*>)? $(as $it:ident)? {
        $($field:ident: $value:expr,)* ..
    }) => {
        impl<$($Generics)*> core::fmt::Debug for $Type $(<$($Arg),*>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $(let $it = self;)?
                let mut out = f.debug_struct(stringify!($Type));
                $(out.field(stringify!($field), &$value);)*
                out.finish_non_exhaustive()
            }
        }
    };
    ([$($Generics:tt)*] $Type:ident $(<$($Arg:tt),*>)? as $it:ident {
        $($field:ident: $value:expr),*
    }) => {
        impl<$($Generics)*> core::fmt::Debug for $Type $(<$($Arg),*>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let $it = self;
                f.debug_struct(stringify!($Type))$(.field(stringify!($field), &$value))*.finish()
            }
        }
    };
    ([$($Generics:tt)*] $Type:ident $(<$($Arg:tt),*>)? as $it:ident ($value:expr)) => {
        impl<$($Generics)*> core::fmt::Debug for $Type $(<$($Arg),*>)? {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let $it = self;
                f.debug_tuple(stringify!($Type)).field(&$value).finish()
            }
        }
    };
}

/// `Default` of a type, by its function `$new`. With `$about`, what it is about, also `new` for the
/// type with its default parameters.
macro_rules! impl_default {
    ([$($Generics:tt)*] $Type:ident $(<$($Arg:tt),*>)?, const_new, $about:literal) => {
        impl_default!([$($Generics)*] $Type $(<$($Arg),*>)?, const_new);

        impl $Type {
            #[doc = $about]
            pub const fn new() -> Self {
                Self::const_new()
            }
        }
    };
    ([$($Generics:tt)*] $Type:ident $(<$($Arg:tt),*>)?, $new:ident) => {
        impl<$($Generics)*> Default for $Type $(<$($Arg),*>)? {
            fn default() -> Self {
                Self::$new()
            }
        }
    };
}
