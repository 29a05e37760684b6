//! Stands for an incompatible version of the waist.
