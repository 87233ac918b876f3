//! LSMT: a layer is data and an index of what is where.
