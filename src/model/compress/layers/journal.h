// What a run has done: a folder of this user's with a sealed file for each part of the model that is rounded
// (base/sealed), and the values that go on to the next. A part counts when the journal, which is written last, names
// it; one that does not verify is told and computed again. Proved by tests/model/compress/layers/journal_test.cpp, and
// by tests/model/compress/by_layers_test.cpp, which ends runs at every moment.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file/lock.h"
#include "base/hash.h"
#include "base/sealed/sealed.h"
#include "model/arch/model.h"

namespace lumen::model {

class Journal {
 public:
  // What is told of a weight that was rounded.
  struct Line {
    std::string name, strategy, remark;
    double error = 0, output_error = -1;
  };
  // What is told of a part.
  struct Report {
    std::vector<Line> lines;
    std::vector<std::string> changed;  // weights that are kept without being rounded
    std::vector<float> losses;         // of the last part
  };
  struct Kept {
    std::string name;
    const Weight* weight;
  };
  // The seals of carried values by the name of their set (model/calibrate/carried.h).
  using Values = std::map<std::string, std::map<int, Seal>>;

  // `key`: what the run is of; a folder of another run is refused (Error), unless `anew`: then it is emptied. `model`:
  // the whole identity of the model, which may take long to know (model/arch/identity.h); without it nothing is
  // compared.
  Journal(std::filesystem::path folder, std::string key, bool anew, std::function<std::string()> model = {});

  const std::filesystem::path& folder() const { return folder_; }
  const std::filesystem::path& values_folder() const { return values_folder_; }  // of this user alone
  const SealKey& seal_key() const { return files_.key(); }

  bool has(size_t part) const { return part < parts_.size() && parts_[part]; }
  size_t first_missing() const;
  size_t end() const { return parts_.size(); }  // one behind the last part that is known
  const Report& report(size_t part) const { return parts_.at(part)->report; }
  // The names, and the shapes, of the weights of a part.
  std::vector<std::pair<std::string, std::vector<int64_t>>> weights(size_t part) const;
  // The part is computed again, for this reason, which is a warning.
  void discard(size_t part, const std::string& why);

  // A part: its weights, what is told of them, and the values that later parts read. On the disk when this returns.
  // Parts behind it stay where it came out as it was before.
  void add(size_t part, const std::vector<Kept>& weights, Report report, const Values& values);
  // A weight of one of the parts before `end`; `format`: what it was rounded to, null for f32.
  std::optional<Weight> weight(const std::string& name, const FormatRef& format, size_t end = SIZE_MAX) const;
  // The values that were kept behind `part`; nothing where that is not the last one that was added.
  std::optional<Values> values(size_t part) const;
  // Error (exit 5) where the kept parts were made of another model, which a part of its bytes did not show. They are
  // removed.
  void require_same_model();
  // The folder goes.
  void remove();

 private:
  struct Stored {
    std::string name;
    std::vector<int64_t> shape;
    uint64_t offset = 0, bytes = 0;
  };
  struct Part {
    std::vector<Stored> weights;
    Hash contents;
    Report report;
    SealedContents file;
  };
  static Part read_part(const nlohmann::json& json);
  static nlohmann::json json_of(const Part& part);
  void open_part(size_t number, const nlohmann::json& json);
  void read_values(const nlohmann::json& json);
  int64_t clear();  // how many bytes went
  void write();

  const std::filesystem::path folder_;
  const std::string key_;
  const std::function<std::string()> whole_model_;
  std::unique_ptr<FolderLock> lock_;
  SealedFolder files_;
  const std::filesystem::path values_folder_;
  std::string model_;  // its whole identity, of the kept parts
  std::vector<std::optional<Part>> parts_;
  std::map<size_t, Hash> contents_before_;  // of parts that are computed again, where they are known
  size_t values_behind_ = SIZE_MAX;         // the part that values_ were kept behind
  Values values_;
};

}  // namespace lumen::model
