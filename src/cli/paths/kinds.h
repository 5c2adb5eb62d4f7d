// What commands do with the files that their options name.
#pragma once

namespace lumen::cli {

// The kind of files that are read through an option's value.
enum class Reads {
  file,     // the file
  model,    // a model: a GGUF file with its other parts, a Hugging Face folder, the folder of a run
  data,     // files of text or rows, or folders of them
  folder,   // the files directly in a folder, without subfolders
  run,      // the files that a training run has left in a folder
  resumed,  // a run that is resumed: its folder is written, too
  tasks,    // a folder in which tasks name files: the command adds them once it has read the tasks
  library,  // folders with *.lum and *.toml
};

// The kind of files that are written through an option's value.
enum class Writes {
  file,
  model,            // a file or a folder; the command itself checks that it can be written
  model_or_input,   // the same; with --overwrite it may be the input model
  folder,           // a folder of results
  folder_of_run,    // the same; the command itself checks that it can be written
  folder_of_cache,  // a folder of files whose names the command chooses
};

}  // namespace lumen::cli
