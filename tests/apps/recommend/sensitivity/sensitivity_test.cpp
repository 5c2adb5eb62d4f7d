// Needs: cpu. What plans are compared with: gradients by channels against differences of losses.
#include "apps/recommend/sensitivity/sensitivity.h"

#include <cmath>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::recommend {

using model::engine;
using model::test_library;

namespace {

RecommenderSettings planned_settings(const char* family) {
  RecommenderSettings s;
  s.family = family;
  s.config = {{"items", 60}, {"hidden", 16}};
  s.by_candidates = true;
  s.is_frozen = true;
  s.rate = 3e-3;
  s.tau_steps = 60;
  return s;
}

// A channel's gradient times itself is the slope of the loss as the channel is made longer: of a device's loss, whose
// weights are applied, from the scores of what comes next.
TEST(Sensitivities, AreSlopesOfTheLoss) {
  const Split split(made_up(100, 60, 20, 1));
  for (const char* family : {"sasrec_planned", "caser_planned"}) {
    RecommenderSettings s = planned_settings(family);
    Recommender model(engine(), *test_library(), s);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(model.train_epoch(split));
    int64_t user = 0;
    while (split.training(user).size() < 5) ++user;
    const std::vector<double> got = channel_sensitivities(model, split, {&user, 1}, 3).front().of_channels;
    int64_t channels = 0;
    for (const PlannedMatrix& m : model.matrices()) channels += m.channels;
    ASSERT_EQ(std::ssize(got), channels);
    EXPECT_EQ(channel_sensitivities(model, split, {&user, 1}, 3).front().of_channels, got);
    double most = 0;
    for (const double x : got) most = std::max(most, x);
    EXPECT_GT(most, 0);
    // Made longer by a share: every matrix of a channel, up and down.
    const Recommender::State before = model.state();
    for (const int64_t channel : {int64_t{1}, channels / 2, channels - 2}) {
      const auto loss_with = [&](float share) {
        Recommender::State now = before;
        int64_t at = channel;
        for (const model::arch::Parameter& p : test_library()->family(family)->parameters(model.settings().config)) {
          if (p.role != "planned") continue;
          const int64_t columns = p.shape.back().number(), own = p.count() / columns;
          if (at >= 0 && at < own)
            for (int64_t k = 0; k < columns; ++k) now[p.name][at * columns + k] *= 1 + share;
          at -= own;
        }
        model.set_state(now);
        return channel_sensitivities(model, split, {&user, 1}, 3).front().loss;
      };
      const double slope = (loss_with(0.1F) - loss_with(-0.1F)) / 0.2;
      EXPECT_NEAR(std::fabs(slope), got[channel], 0.1 * got[channel] + 2e-4) << family << " channel " << channel;
    }
    model.set_state(before);
  }
  Recommender plain(engine(), *test_library(), [] {
    RecommenderSettings s = planned_settings("sasrec");
    s.is_frozen = false;
    return s;
  }());
  const int64_t user = 0;
  EXPECT_THROW((void)channel_sensitivities(plain, split, {&user, 1}, 1), Error);
}

}  // namespace
}  // namespace lumen::recommend
