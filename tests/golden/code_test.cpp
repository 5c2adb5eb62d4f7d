// Needs: none. What the machine code of the grid's kernels must and must not hold (tests/golden/code.txt): instructions
// of the matrix units, dots, no spills. Facts of GPUs are those of `lumen compile --check` (emit/report.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "base/file/file.h"
#include "emit/emit.h"
#include "emit/report.h"
#include "golden_text.h"
#include "grid.h"

namespace lumen::golden {
namespace {

struct Law {
  std::string kind, what;
  int line = 0;
};
struct Laws {
  std::string kernel, machine;
  std::vector<Law> laws;
};

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t end = 0; (end = text.find(at, from)) != std::string::npos; from = end + at.size())
    parts.push_back(text.substr(from, end - from));
  parts.push_back(text.substr(from));
  return parts;
}

void PrintTo(const Laws& laws, std::ostream* out) {
  *out << laws.kernel << " on " << laws.machine;
}

// "CASE | MACHINES" begins a group, what is indented belongs to it.
std::vector<Laws> read_laws() {
  std::vector<Laws> out;
  size_t first = 0;
  int number = 0;
  for (const std::string& line : split(read_file(folder() / "code.txt"), "\n")) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ') {
      const std::vector<std::string> parts = split(line, " | ");
      EXPECT_EQ(parts.size(), 2U) << "code.txt:" << number << ": CASE | MACHINES is expected";
      if (parts.size() != 2) return {};
      first = out.size();
      for (const std::string& machine : split(parts[1], " ")) out.push_back({parts[0], machine, {}});
      continue;
    }
    const size_t begin = line.find_first_not_of(' '), space = line.find(' ', begin);
    const std::string what = space == std::string::npos ? "" : line.substr(space + 1);
    for (size_t i = first; i < out.size(); ++i)
      out[i].laws.push_back({line.substr(begin, space == std::string::npos ? space : space - begin), what, number});
  }
  return out;
}

// A line that holds the parts of `pattern` (what stands between "..") in their order; "" where there is none.
std::string find_line(const std::vector<std::string>& lines, const std::string& pattern) {
  const std::vector<std::string> parts = split(pattern, "..");
  for (const std::string& line : lines) {
    size_t at = 0;
    for (const std::string& part : parts) {
      at = line.find(part, at);
      if (at == std::string::npos) break;
      at += part.size();
    }
    if (at != std::string::npos) return line;
  }
  return "";
}

struct Code {
  std::vector<std::string> lines;
  int64_t loop_matrix = 0, loop_dots = 0, loop_spills = 0;  // of the kernel with the most
  int64_t spills = 0, private_bytes = 0;                    // of GPUs, of all kernels
};

Code code_of(const Case& c, const machine::Machine& m) {
  std::vector<loop::Kernel> kernels;
  for (const Made& made : make(c, m, false))
    for (const synth::Step& step : made.chosen.steps) {
      kernels.push_back(step.kernel);
      kernels.back().name += fmt::format("_{}", kernels.size());
    }
  const std::string text = emit::emit(kernels, m, emit::Output::commented_assembly);
  keep_text(fmt::format("code/{}/{}.s", m.name, c.name), [&] { return text; });
  Code code;
  code.lines = split(text, "\n");
  for (const emit::KernelReport& r : emit::report(kernels, m, text)) {
    code.spills += r.vector_spills.value_or(0) + r.scalar_spills.value_or(0);
    code.private_bytes += r.private_bytes;
    // Of the kernel with the most products; what prepares its operands runs once.
    const auto products = [](int64_t matrix, int64_t dots, int64_t spills) { return std::tuple(matrix, dots, spills); };
    if (products(r.loop_matrix, r.loop_dots, r.loop_spills) <
        products(code.loop_matrix, code.loop_dots, code.loop_spills))
      continue;
    code.loop_matrix = r.loop_matrix;
    code.loop_dots = r.loop_dots;
    code.loop_spills = r.loop_spills;
  }
  return code;
}

void check(const Code& code, const Law& law) {
  const std::string place = fmt::format("tests/golden/code.txt:{}: {} {}", law.line, law.kind, law.what);
  const auto number = [&] { return std::strtoll(law.what.c_str(), nullptr, 10); };
  if (law.kind == "must") {
    EXPECT_NE(find_line(code.lines, law.what), "") << place;
  } else if (law.kind == "must-not") {
    EXPECT_EQ(find_line(code.lines, law.what), "") << place;
  } else if (law.kind == "spills") {
    EXPECT_LE(code.spills, number()) << place;
  } else if (law.kind == "private") {
    EXPECT_LE(code.private_bytes, number()) << place;
  } else if (law.kind == "loop-spills") {
    EXPECT_LE(code.loop_spills, number()) << place;
  } else if (law.kind == "loop-matrix") {
    EXPECT_GE(code.loop_matrix, number()) << place;
  } else if (law.kind == "loop-dots") {
    EXPECT_GE(code.loop_dots, number()) << place;
  } else {
    ADD_FAILURE() << place << ": no such law; must, must-not, spills, private, loop-spills, loop-matrix, loop-dots";
  }
}

class CodeLaws : public testing::TestWithParam<Laws> {};

TEST_P(CodeLaws, Hold) {
  const Laws& laws = GetParam();
  const auto c = std::find_if(grid().begin(), grid().end(), [&](const Case& x) { return x.name == laws.kernel; });
  ASSERT_NE(c, grid().end()) << "the grid has no case '" << laws.kernel << "'";
  ASSERT_FALSE(laws.laws.empty());
  const Code code = code_of(*c, *machine::find_machine(laws.machine));
  RecordProperty("facts",
                 fmt::format("matrix {} dots {} spills {}", code.loop_matrix, code.loop_dots, code.loop_spills));
  for (const Law& law : laws.laws) check(code, law);
}
INSTANTIATE_TEST_SUITE_P(Code, CodeLaws, testing::ValuesIn(read_laws()), [](const auto& of) {
  std::string name = of.param.kernel + "_" + of.param.machine;
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
});

}  // namespace
}  // namespace lumen::golden
