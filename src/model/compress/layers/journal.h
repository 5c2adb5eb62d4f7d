// Saved progress of a run: a folder of this user's with a sealed file for each rounded part of the model (base/sealed),
// and the values carried to the next part. A part counts once the journal, which is written last, names it; one that
// fails verification is reported and computed again. Proved by tests/model/compress/layers/journal_test.cpp, and by
// tests/model/compress/by_layers_test.cpp, which ends runs at every moment.
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

namespace lumen::model::compress {

class Journal {
 public:
  // The report on a rounded weight.
  struct Line {
    std::string name, strategy, remark;
    double error = 0, output_error = -1;
  };
  // The report on a part.
  struct Report {
    std::vector<Line> lines;
    std::vector<std::string> changed;  // weights that are saved without being rounded
    std::vector<float> losses;         // of the last part
  };
  struct Kept {
    std::string name;
    const arch::Weight* weight;
  };
  // The seals of carried values by the name of their set (model/calibrate/carried.h).
  using Values = std::map<std::string, std::map<int, Seal>>;

  // `key` identifies the run; the folder of another run is refused (Error), unless `anew`: then it is emptied. `model`:
  // computes the model's full identity, which may take long (model/arch/identity.h); empty: not compared.
  Journal(std::filesystem::path folder, std::string key, bool anew, std::function<std::string()> model = {});

  const std::filesystem::path& folder() const { return folder_; }
  const std::filesystem::path& values_folder() const { return values_folder_; }  // readable by this user only
  const SealKey& seal_key() const { return files_.key(); }

  bool has(size_t part) const { return part < parts_.size() && parts_[part]; }
  size_t first_missing() const;
  size_t end() const { return parts_.size(); }  // one past the last known part
  const Report& report(size_t part) const { return parts_.at(part)->report; }
  // The names and shapes of a part's weights.
  std::vector<std::pair<std::string, std::vector<int64_t>>> weights(size_t part) const;
  // Marks the part for recomputation, and prints the reason as a warning.
  void discard(size_t part, const std::string& why);

  // Adds a part: its weights, their report, and the values that later parts read. On disk when this returns. Later
  // parts stay valid if this one's contents equal its previous ones.
  void add(size_t part, const std::vector<Kept>& weights, Report report, const Values& values);
  // A weight of one of the parts before `end`; `format`: that it was rounded to, null for f32.
  std::optional<arch::Weight> weight(const std::string& name, const FormatRef& format, size_t end = SIZE_MAX) const;
  // The values carried out of `part`; nullopt unless it is the last part added.
  std::optional<Values> values(size_t part) const;
  // Error (exit 5) when the saved parts were made from another model, which the partial hash did not show. They are
  // removed.
  void require_same_model();
  // Removes the folder.
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
  int64_t clear();  // returns the bytes freed
  void write();

  const std::filesystem::path folder_;
  const std::string key_;
  const std::function<std::string()> whole_model_;
  std::unique_ptr<FolderLock> lock_;
  SealedFolder files_;
  const std::filesystem::path values_folder_;
  std::string model_;  // full identity of the model of the saved parts
  std::vector<std::optional<Part>> parts_;
  std::map<size_t, Hash> contents_before_;  // of discarded parts, where known
  size_t values_behind_ = SIZE_MAX;         // the part that values_ were carried out of
  Values values_;
};

}  // namespace lumen::model::compress
