// What a run has done: a folder with a file of tensors for each part of the model that is rounded, and the values that
// go on to the next. A part counts when its line stands in the journal, which is written last and at once. Proved by
// tests/model/compress/by_layers_test.cpp, which ends runs at every moment.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file/lock.h"
#include "model/arch/model.h"
#include "model/file/tensors.h"

namespace lumen::model {

class Journal {
 public:
  // `key`: what the run is of; a folder of another run is refused (Error), unless `anew`: then it is emptied.
  Journal(std::filesystem::path folder, std::string key, bool anew);

  const std::filesystem::path& folder() const { return folder_; }
  size_t done() const { return parts_.size(); }  // parts 0 .. done() - 1

  struct Kept {
    std::string name;
    const Weight* weight;
  };
  // Part done(): its weights, and what is told of them. On the disk when this returns.
  void add(const std::vector<Kept>& weights, nlohmann::json report);
  const nlohmann::json& report(size_t part) const { return parts_[part]; }
  // A weight of a part that is done, as it lies in the file; `format`: what it was rounded to, null where it was not.
  std::optional<Weight> weight(const std::string& name, const FormatLibrary& formats, const FormatRef& format);
  // The folder goes.
  void remove();

 private:
  std::filesystem::path part_file(size_t part) const;
  void write() const;

  const std::filesystem::path folder_;
  const std::string key_;
  std::unique_ptr<FolderLock> lock_;
  std::vector<nlohmann::json> parts_;
  std::map<std::string, size_t> part_of_;
  std::map<size_t, std::shared_ptr<const TensorFile>> open_;
};

}  // namespace lumen::model
