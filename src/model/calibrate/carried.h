// Values that one part of a model computes and a later one reads, for all windows of a text: in files of a folder, so
// that a calibration may exceed memory, or in memory without a folder. Proved by
// tests/model/calibrate/layer_run_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sealed/seal.h"

namespace lumen::model::calibrate {

class CarriedValues {
 public:
  // `name` distinguishes several in one folder. With a key, kept values are sealed and a later run can take them up.
  CarriedValues(std::filesystem::path folder, std::string name, std::optional<SealKey> key = {})
      : folder_(std::move(folder)), name_(std::move(name)), key_(key) {}
  CarriedValues(const CarriedValues&) = delete;
  CarriedValues& operator=(const CarriedValues&) = delete;

  // Bytes [at, at + part.size()) of value `number`. Error when the disk is full.
  void write(int number, int64_t at, std::span<const uint8_t> part);
  void read(int number, int64_t at, std::span<uint8_t> part);
  // Flushes the value to disk, and seals it.
  void keep(int number);
  void drop(int number);
  int64_t bytes() const;

  // The seals of these kept values. Error where one was written after it was kept.
  std::map<int, Seal> seals(std::span<const int> numbers) const;
  // Takes over the values that an earlier run kept; false where they do not match the seals.
  bool take_up(const std::map<int, Seal>& kept);

 private:
  class File;
  std::filesystem::path path(int number) const;
  File& file(int number);
  Seal seal_of(int number);

  const std::filesystem::path folder_;
  const std::string name_;
  const std::optional<SealKey> key_;
  std::map<int, Seal> seals_;
  std::map<int, std::vector<uint8_t>> memory_;
  std::map<int, std::shared_ptr<File>> files_;
};

}  // namespace lumen::model::calibrate
