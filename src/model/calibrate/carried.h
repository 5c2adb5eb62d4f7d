// Values that one part of a model computes and a later one reads, of all windows of a text: files of a folder, so that
// a calibration may be larger than memory, or memory where no folder is named. Proved by
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

namespace lumen::model {

class CarriedValues {
 public:
  // `name` tells several of one folder apart. With a key what is kept is sealed, and can be taken up by a later run.
  CarriedValues(std::filesystem::path folder, std::string name, std::optional<SealKey> key = {})
      : folder_(std::move(folder)), name_(std::move(name)), key_(key) {}
  CarriedValues(const CarriedValues&) = delete;
  CarriedValues& operator=(const CarriedValues&) = delete;

  // Bytes [at, at + part.size()) of value `number`. Error when the disk is full.
  void write(int number, int64_t at, std::span<const uint8_t> part);
  void read(int number, int64_t at, std::span<uint8_t> part);
  // What was written is on the disk when this returns.
  void keep(int number);
  void drop(int number);
  int64_t bytes() const;

  // The seals of what was kept of these values. Error where one was not kept since it was written.
  std::map<int, Seal> seals(std::span<const int> numbers) const;
  // Whether an earlier run left these values as they were kept; they are taken then.
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

}  // namespace lumen::model
