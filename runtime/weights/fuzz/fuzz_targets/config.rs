//! Text is read as `config.json` and asked everything that can be asked.

#![no_main]

use kinfolk_weights::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(config) = Config::from_json("config.json", text) else { return };
    let _ = config.architectures();
    for key in ["num_hidden_layers", "hidden_size", "rope_theta", "layer_types", "eos_token_id", "a"] {
        let _ = (config.usize(key), config.layer_usize(key, 0, 2), config.f32(key), config.opt_str(key));
        let _ = (config.opt_usizes(key), config.opt_f32s(key), config.opt_strs(key), config.opt_bools(key));
        if let Ok(Some(section)) = config.section(key) {
            let _ = section.f32("factor");
        }
    }
});
