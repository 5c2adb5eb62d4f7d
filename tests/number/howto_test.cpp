// Needs none. The worked example of docs/howto/add-a-format.md does what the page says.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file/file.h"
#include "formats_of_tests.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen {
namespace {

double relative_error(const Format& f, const std::vector<float>& x) {
  const auto columns = static_cast<int64_t>(x.size());
  const auto y = decode(f, encode(f, x, 1, columns), 1, columns);
  double error = 0, power = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    error += (static_cast<double>(x[k]) - y[k]) * (static_cast<double>(x[k]) - y[k]);
    power += static_cast<double>(x[k]) * x[k];
  }
  return error / power;
}

TEST(HowTo, AddAFormat) {
  const std::string page = read_file(std::string(LUMEN_SOURCE_DIR) + "/docs/howto/add-a-format.md");
  const size_t begin = page.find("```lum\n") + 7, end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  FormatLibrary library = FormatLibrary::builtin();
  library.add(lang::parse_file(std::make_shared<Source>(Source{"stepped4.lum", page.substr(begin, end - begin)})));
  const FormatRef f = library.get("stepped4");
  EXPECT_EQ(f->bits_per_weight(), 4.5);
  const FormatFacts facts = facts_of(*f);
  std::string lines;
  for (const std::string& line : facts.lines) lines += line + "\n";
  EXPECT_NE(lines.find("affine in integers: value = scale * q\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("scale  = d, the same over groups of 32"), std::string::npos) << lines;
  EXPECT_NE(lines.find("q      = stepped_values[q[i]], from -12 to 10"), std::string::npos) << lines;

  const std::vector<float> normal = gaussian(1 << 16, 1), other = gaussian(3 << 16, 2);
  std::vector<float> heavy;  // Student t with 3 degrees of freedom
  for (size_t k = 0; k < normal.size(); ++k) {
    const float s =
        other[3 * k] * other[3 * k] + other[3 * k + 1] * other[3 * k + 1] + other[3 * k + 2] * other[3 * k + 2];
    heavy.push_back(normal[k] / std::sqrt(s / 3));
  }
  const FormatRef plain = library.get("q4_0");
  EXPECT_GT(relative_error(*f, normal), relative_error(*plain, normal));
  EXPECT_LT(relative_error(*f, heavy), relative_error(*plain, heavy));
  EXPECT_LT(relative_error(*f, normal), 0.02);

  // The layouts shown are those of formats in the library.
  for (const char* field : {"qs : u4[32] at halves", "u5[32] at bits 0..3 byte 6 (2:4, 16:8), bits 4..4 byte 2"})
    EXPECT_NE(page.find(field), std::string::npos);
  EXPECT_EQ(
      format_of("format t : block 32 {\nd : f16\nqs : u4[32] at halves\ndecode(i) = d * qs[i]\n}")->fields[1].layout,
      plain->fields[1].layout);
}

}  // namespace
}  // namespace lumen
