//! What a host may count on, seen from outside.

mod samplers;
