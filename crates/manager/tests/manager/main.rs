//! Tests of the manager against a driver, a kernel and a journal that are made of maps.
#![forbid(unsafe_code)]

#[cfg(test)]
mod creating;
#[cfg(test)]
mod denials;
#[cfg(test)]
mod random;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod startup;
#[cfg(test)]
mod stopping;
