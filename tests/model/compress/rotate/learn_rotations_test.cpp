// needs: cpu. The best rotations that were seen are kept, those at the beginning included; same bits at any number of
// threads.
#include "model/compress/rotate/learn_rotations.h"

#include "tests/model/compress/rotate/rotate_case.h"

namespace lumen::model::compress {
namespace {

// A price that rises with every step.
class Worse : public RotationObjective {
 public:
  explicit Worse(RotatedWeights& w) : w_(w) {}
  double value() override { return ++seen_; }
  double add_gradients() override {
    const std::vector<float> ones(w_.values("layers.0.wq").size(), 1);
    w_.pull("layers.0.wq", ones);
    return 0;
  }

 private:
  RotatedWeights& w_;
  double seen_ = 0;
};

TEST(LearnRotations, NeverWorseThanTheBeginning) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  std::vector<std::vector<double>> start;
  for (size_t s = 0; s < w.spaces().size(); ++s) start.push_back(w.rotation(s));
  Worse price(w);
  const LearnedRotations got = learn_rotations(w, price, {.steps = 5});
  EXPECT_EQ(got.before, 1);
  EXPECT_EQ(got.after, 1);
  EXPECT_EQ(got.step, 0);
  EXPECT_EQ(got.rotations, start);
  for (size_t s = 0; s < start.size(); ++s) EXPECT_EQ(w.rotation(s), start[s]);
}

TEST(LearnRotations, StopsWhenAsked) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  Worse price(w);
  int steps = 0;
  (void)learn_rotations(
      w, price, {.steps = 50}, [&](const RotationProgress& p) { steps = p.step; }, [&] { return steps == 3; });
  EXPECT_EQ(steps, 3);
}

TEST(LearnRotations, SameBitsAtAnyThreadCount) {
  const arch::Model m = rotate_model();
  const std::map<std::string, FormatRef> formats = rotate_formats(m, "int3_g32");
  std::vector<LearnedRotations> got;
  for (const int threads : {1, 2}) {
    run::Engine& e = rotate_engine(threads);
    RotatedWeights w(e, m, rotate_sites(m));
    begin_rotations(w);
    TokenLossOptions o;
    o.run = {.length = 8, .batch = 4};
    TokenLoss loss(e, w, formats, rotate_text(16 * 8), o);
    got.push_back(learn_rotations(w, loss, {.steps = 2}));
    calibrate::LayerRun run(e, m, rotate_text(16 * 8), o.run);
    RoundingError error(e, w, formats, &run);
    got.push_back(learn_rotations(w, error, {.steps = 2}));
  }
  for (const size_t k : {0, 1}) {
    EXPECT_EQ(got[k].after, got[k + 2].after);
    EXPECT_EQ(got[k].rotations, got[k + 2].rotations);
  }
  EXPECT_LT(got[1].after, got[1].before);
}

}  // namespace
}  // namespace lumen::model::compress
