// needs: cpu. Rounding errors under rotations: as the codec gives them, and smaller once rotations are learned.
#include "model/compress/rotate/rounding_error.h"

#include "tests/model/compress/rotate/rotate_case.h"

namespace lumen::model::compress {
namespace {

TEST(RoundingError, IsThatOfTheCodec) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  const std::map<std::string, FormatRef> formats = rotate_formats(m, "int3_g32");
  double sum = 0;
  int weights = 0;
  for (const auto& [name, format] : formats) {
    const std::vector<float> values = w.values(name);
    const int64_t columns = m.weights.at(name).columns(), rows = m.weights.at(name).rows();
    const auto blob = rotate_engine().encode(format, values.data(), rows, columns);
    const std::vector<float> rounded = rotate_engine().decode(format, blob.data(), rows, columns);
    double lost = 0, whole = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      lost += (double{rounded[i]} - values[i]) * (double{rounded[i]} - values[i]);
      whole += double{values[i]} * values[i];
    }
    sum += lost / whole;
    ++weights;
  }
  RoundingError error(rotate_engine(), w, formats, nullptr);
  EXPECT_NEAR(error.value(), sum / weights, 1e-5 * sum);
  // Text or not, relative errors are alike; what products lose of it is in between.
  calibrate::LayerRun run(rotate_engine(), m, rotate_text(64 * 8), {.length = 8, .batch = 16});
  RoundingError weighted(rotate_engine(), w, formats, &run);
  EXPECT_GT(weighted.value(), 0.2 * sum / weights);
  EXPECT_LT(weighted.value(), 5 * sum / weights);
  EXPECT_NE(weighted.value(), error.value());
}

TEST(RoundingError, FallsByLearning) {
  const arch::Model m = rotate_model();
  const std::vector<std::pair<std::string, double>> formats = {
      {"int3_g32", 0.97}, {"int3_g32_asym", 0.97}, {"nvfp4", 1}};
  for (const auto& [format, part] : formats)
    for (const bool read : {false, true}) {
      if (read && format != formats[0].first) continue;
      SCOPED_TRACE(format + (read ? " with a text" : ""));
      RotatedWeights w(rotate_engine(), m, rotate_sites(m));
      begin_rotations(w);
      const std::map<std::string, FormatRef> rounded = rotate_formats(m, format);
      calibrate::LayerRun run(rotate_engine(), m, rotate_text(64 * 8), {.length = 8, .batch = 16});
      RoundingError error(rotate_engine(), w, rounded, read ? &run : nullptr);
      const LearnedRotations got = learn_rotations(w, error, {.steps = 8});
      EXPECT_LT(got.after, part * got.before);
      EXPECT_NEAR(error.value(), got.after, 1e-12) << "the best is what is set";
    }
}

}  // namespace
}  // namespace lumen::model::compress
