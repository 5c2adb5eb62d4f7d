#include "model/calibrate/there_and_back.h"

namespace lumen::model::calibrate {

ThereAndBack::ThereAndBack(LayerRun& run, Numbers numbers, const std::filesystem::path& folder)
    : values(folder, "forward"), slopes(folder, "slopes"), run_(run), numbers_(std::move(numbers)) {}

void ThereAndBack::there(const std::function<void(size_t)>& before) {
  for (size_t k = 0; k < run_.parts(); ++k) {
    if (before) before(k);
    held_.clear();
    run_.run(k, weights(), &values, k + 1 < run_.parts() ? &values : nullptr);
  }
}

void ThereAndBack::back(const std::function<void(size_t)>& visit) {
  for (size_t k = run_.parts(); k-- > 0;) {
    held_.clear();
    visit(k);
    for (const int number : run_.part(k).out) {
      values.drop(number);
      slopes.drop(number);
    }
  }
}

std::span<const float> ThereAndBack::weight(const std::string& name) {
  std::vector<float>& numbers = held_[name];
  if (numbers.empty()) numbers = numbers_(name);
  return numbers;
}

}  // namespace lumen::model::calibrate
