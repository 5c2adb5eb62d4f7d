// The table of `lumen bench`, in the forms and with the field names that users of GGUF files know. Proved by tests/cli.
#pragma once

#include <cstdint>
#include <string>

#include "model/infer/measure/speed.h"

namespace lumen::cli {

enum class BenchForm : uint8_t { md, csv, json, jsonl };
BenchForm bench_form(const std::string& name);  // Error (exit 2) for an unknown name

struct BenchLine {
  std::string file, type;  // file: "" for a synthetic model
  int64_t model_bytes = 0, parameters = 0;
  int threads = 0;
  int64_t chunk = 0;
  std::string machine, type_k, type_v;
  std::string gpu;  // the device's own description; "": the processor
  bool exact = false;
  std::string time;  // UTC, ISO 8601
  model::infer::Speed speed;
};

// The output before the first line, for one line, and after the last line.
std::string bench_head(BenchForm form);
std::string bench_line(BenchForm form, const BenchLine& line, bool first);
std::string bench_foot(BenchForm form);

// The family, its size, and the format of most weights.
std::string model_type(const model::arch::Model& model);

}  // namespace lumen::cli
