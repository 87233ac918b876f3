//! The configuration of an image.
#![no_main]

use std::path::Path;

use image::ImageConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    match ImageConfig::parse(Path::new("/nonexistent/config.json"), text) {
        Ok(config) => assert!(config.lowers.len() <= 255),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
