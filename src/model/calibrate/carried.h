// Values that one part of a model computes and a later one reads, of all windows of a text: files of a folder, so that
// a calibration may be larger than memory, or memory where no folder is named. Proved by
// tests/model/calibrate/layer_run_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lumen::model {

class CarriedValues {
 public:
  // `name` tells several of one folder apart. Files that are there already are read.
  CarriedValues(std::filesystem::path folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  CarriedValues(const CarriedValues&) = delete;
  CarriedValues& operator=(const CarriedValues&) = delete;

  // Bytes [at, at + part.size()) of value `number`. Error when the disk is full.
  void write(int number, int64_t at, std::span<const uint8_t> part);
  void read(int number, int64_t at, std::span<uint8_t> part);
  // What was written is on the disk when this returns.
  void keep(int number);
  void drop(int number);
  int64_t bytes() const;

 private:
  class File;
  std::filesystem::path path(int number) const;
  File& file(int number);

  const std::filesystem::path folder_;
  const std::string name_;
  std::map<int, std::vector<uint8_t>> memory_;
  std::map<int, std::shared_ptr<File>> files_;
};

}  // namespace lumen::model
