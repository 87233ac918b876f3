//! ZFile: a file in compressed blocks of equal size, readable at any place.
