// The program called from inside a test: arguments in, text and exit code out.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/run_app.h"

namespace lumen::cli {

struct Outcome {
  int code = 0;
  std::string out, error;
};

inline Outcome lumen(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lumen");
  std::vector<const char*> argv;
  for (const std::string& a : arguments) argv.push_back(a.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome o;
  o.code = run_app(static_cast<int>(argv.size()), argv.data());
  std::fflush(stdout);
  o.out = testing::internal::GetCapturedStdout();
  o.error = testing::internal::GetCapturedStderr();
  return o;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lumen::cli
