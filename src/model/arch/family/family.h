// Model families and their sources: the embedded library of formats, functions, families and recipes, and the user's
// additions. A family is one `model` of a .lum file; nothing here depends on a particular family. Proved by
// tests/model/arch/arch_test.cpp.
//
// May include: base, base/file, graph/elaborate, lang, model/file, number/library.
// Offers: config_file.h, gguf_rules.h, pattern.h, source.h, tower.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/elaborate/elaborate.h"
#include "lang/ast.h"
#include "number/library/library.h"

namespace lumen::model::arch {

inline constexpr const char* kResult = "result";

class Family;
using FamilyRef = std::shared_ptr<const Family>;

// All sources: formats, functions, families, recipes. Add folders before the first query.
class Library : public std::enable_shared_from_this<Library> {
 public:
  static std::shared_ptr<Library> builtin();
  void add_format_folder(const std::filesystem::path& folder);  // --formats DIR
  void add_model_folder(const std::filesystem::path& folder);   // *.lum families and *.toml recipes
  const lang::File& add_model_text(SourceRef source);           // one file of functions and families

  // The same, but replaces a file that defines a model or function of the same name (a modified copy of an embedded
  // file).
  const lang::File& replace_model_text(SourceRef source);

  const FormatLibrary& formats() const { return formats_; }
  FamilyRef family(const std::string& name) const;  // Error with the known names
  // By the attribute `gguf`. `value_of` returns the number of a metadata key, 0 when it is absent: of families with the
  // same architecture, one whose `gguf_if` holds is preferred, then the first without one.
  FamilyRef family_of_gguf(const std::string& architecture,
                           const std::function<double(const std::string&)>& value_of) const;
  // The family of a Hugging Face folder: `architecture` and `type` are the first of "architectures" and the
  // "model_type" of its config.json; either may be "". Where they name two families, the type decides, as it does in
  // transformers. The architecture may also be that of a model without its head: LlamaModel for LlamaForCausalLM.
  // `says` tells whether a key of config.json has a value, and whether that is or contains a word (attribute `hf_if`):
  // a family with conditions is preferred if one of them holds, and is not the folder's otherwise.
  using Says = std::function<bool(const std::string& key, const std::string& word)>;
  FamilyRef family_of_hf(const std::string& architecture, const std::string& type = "", const Says& says = {}) const;
  // The member of config.json that describes the text part of a multimodal architecture (attribute `hf_inside`); "" for
  // other architectures. And the family of that part, whose "model_type" is `type`; where it need not be known, the
  // first family that names the architecture.
  std::string text_member(const std::string& architecture) const;
  FamilyRef family_inside(const std::string& architecture, const std::string& type, bool must_be_known = true) const;
  FamilyRef family_with_size(const std::string& size) const;  // null when no family has it
  std::vector<std::string> family_names() const;
  graph::Scope scope() const;
  const lang::ModelDecl& optimizer(const std::string& name) const;  // Error with the known names
  std::vector<std::string> optimizer_names() const;

  struct RecipeText {
    std::string name, text;
  };
  std::optional<RecipeText> recipe(const std::string& name) const;  // case-insensitive
  std::vector<std::string> recipe_names() const;

 private:
  std::vector<const lang::ModelDecl*> family_declarations(bool towers = false) const;  // towers are parts: tower.h
  std::vector<FamilyRef> families() const;
  FamilyRef built(const lang::ModelDecl& decl) const;
  FormatLibrary formats_;
  std::vector<std::unique_ptr<lang::File>> files_;
  std::vector<RecipeText> recipes_;
};
using LibraryRef = std::shared_ptr<const Library>;

// A config key and its names in files; {a} is the architecture. All GGUF names are written, the first present one is
// read. HF names may lead into objects: "rope_scaling.factor".
struct ConfigKey {
  std::string name;
  bool is_float = false, is_bool = false;
  bool has_axis = false;  // entries of a Config are "name.0", "name.1", ..
  std::vector<std::string> gguf, hf;
  std::string gguf_length;  // an array whose length is the value when no GGUF name is present
  // GGUF files hold the value plus that of this key, or times a number; the default for files without any of the names;
  // a tensor whose presence means 1.
  std::string gguf_plus;
  double gguf_times = 1;
  std::optional<double> gguf_else;
  std::string gguf_tensor;
  bool gguf_largest = false;  // where a GGUF file has a number for each layer, the value is the largest of them
  // Strings by value, and their names in GGUF files ("": none). Empty for numbers.
  std::vector<std::string> choices, gguf_choices;
  std::map<std::string, double> hf_words;  // strings for numbers in HF files
  std::string hf_members;                  // HF files list the indices of the elements that are 1
  std::string hf_each;                // HF files have numbers of single elements at this path, {i} being the element
  std::string hf_letters, hf_letter;  // HF files have a string whose letters repeat: 1 where this letter occurs
  std::vector<std::string> entries(const graph::Config& config) const;  // its names there
};

struct Parameter : graph::ModelParameter {
  bool frozen = false;    // never trained
  std::string absent_if;  // a config key: the parameter is absent when its value is not 0 (an output tied to the
                          // embedding)
  bool decays = true;     // weight decay; norms and other vectors have none
  double rate = 1;        // factor on the learning rate
  std::optional<double> weight_decay;  // overrides the optimizer's, whatever `decays` is
  // n > 0: in HF files the rows are n heads of [2, d/2] rows; here they are [d/2, 2] (adjacent pairs, for RoPE). This
  // applies only to the first hf_turned of d rows (0: all).
  int64_t hf_halves = 0, hf_turned = 0;
  // n > 0: in HF files the rows from hf_grouped_from on (with hf_grouped_columns: columns) stand in n groups of
  // hf_members parts; here the first parts of all groups come first, then the second ones, and so on.
  int64_t hf_groups = 0, hf_members = 0, hf_grouped_from = 0;
  bool hf_grouped_columns = false;
  graph::Shape hf_shape;        // of the tensor in HF files, which has as many elements; empty: the same
  bool hf_scalar = false;       // HF files have it as a number without axes
  bool gguf_minus_exp = false;  // GGUF files hold -exp of the values
  std::string gguf_key;         // GGUF files hold its one number, with those of all layers, under this metadata key
  size_t gguf_place = 0;        // the layer
  double hf_plus = 0;           // added to the values of HF files
  bool hf_transposed = false;   // HF files hold [in, out]
  // HF files may fuse several parameters in one tensor, along the axis before the last: its name, the index of this
  // part, and the number of parts.
  std::string hf_fused;
  int64_t hf_part = 0, hf_parts = 1;
  // Or ranges of rows of every hf_of rows of a tensor: a group, which is a matrix of this parameter (its transpose with
  // hf_transposed). Here the first ranges of all groups come first, then the second ones, and so on. With hf_columns
  // along the last axis instead, before hf_transposed.
  struct Range {
    int64_t from = 0, count = 0;
  };
  std::string hf_rows;
  bool hf_columns = false;
  std::vector<Range> hf_ranges;
  int64_t hf_count = 0, hf_of = 0;                        // hf_count: of all ranges
  int64_t row_of_whole(int64_t row, int64_t rows) const;  // of `rows` rows of this parameter
  bool hf_packed = false;                                 // only in HF folders that store it packed (packed.h)
  int64_t count() const;
  bool is_vector() const;  // also several vectors, one per expert: biases and norms, which are f32 and never quantized
};

class Family {
 public:
  Family(LibraryRef library, const lang::ModelDecl& decl);

  const std::string& name() const { return decl_.name; }
  const lang::ModelDecl& declaration() const { return decl_; }  // with everything inherited
  const std::string& gguf_architecture() const { return gguf_; }
  const std::vector<std::string>& hf_architectures() const { return hf_; }
  const std::vector<ConfigKey>& keys() const { return keys_; }
  // Tensors of HF or GGUF files that are no parameters; * matches any characters.
  std::vector<std::string> ignored(bool hf, const graph::Config& config) const;
  // Architectures that contain the family as a part (wrapped.h): `member` of config.json has the family's keys.
  struct Inside {
    std::string architecture, member;
  };
  const std::vector<Inside>& inside() const { return inside_; }
  // Names of tensors in such files: the file's prefix and the family's, and those of other parts; * matches any
  // characters.
  const std::vector<std::pair<std::string, std::string>>& prefixes() const { return prefixes_; }
  const std::vector<std::string>& beside() const { return beside_; }
  const std::vector<std::string>& hf_types() const { return hf_types_; }  // model_type of config.json; one is written
  const std::string& gguf_condition() const { return gguf_if_; }          // a metadata key, or ""
  bool accepts_gguf(double value) const;                                  // whether the condition holds for this value
  // Whether a key has a meaning in this config (its `when`); in GGUF files also by `gguf_when`.
  bool is_used(const ConfigKey& key, const graph::Config& config, bool gguf) const;
  std::vector<std::string> sizes() const;
  bool has_function(const std::string& function) const;
  const Library& library() const { return *library_; }

  graph::Config config(const std::string& size, const graph::Config& values) const;
  std::vector<Parameter> parameters(const graph::Config& config) const;  // without absent ones
  std::vector<Parameter> all_parameters(const graph::Config& config) const;
  // A single result is named kResult.
  graph::Graph function(const std::string& function, const graph::Config& config) const;

 private:
  LibraryRef library_;
  const lang::ModelDecl decl_;  // with everything inherited
  std::string gguf_, gguf_if_;
  std::optional<double> gguf_value_;
  std::vector<Inside> inside_;
  std::vector<std::pair<std::string, std::string>> prefixes_;
  std::vector<std::string> hf_, hf_types_, hf_ignored_, gguf_ignored_, beside_;
  std::vector<ConfigKey> keys_;
};

}  // namespace lumen::model::arch
