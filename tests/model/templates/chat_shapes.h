// Templates, one for each way in which those of models treat answers, and a vocabulary with their control tokens. All
// were written for these tests.
#pragma once

#include <map>
#include <string>

#include "model/templates/chat.h"

namespace lumen::model::templates {

inline text::Tokenizer shapes_tokenizer(const std::string& eos = "<|end|>") {
  text::BpeTraining options;
  options.specials = {"<|end|>",         "<|user|>",  "<|assistant|>", "<|system|>",  "<|tool|>",
                      "<|observation|>", "<|start|>", "<|channel|>",   "<|message|>", "<|return|>",
                      "<|call|>",        "[INST]",    "[/INST]",       "</s>"};
  options.vocabulary = 256 + static_cast<int64_t>(options.specials.size());
  options.end_of_text = eos;
  return text::Tokenizer::train("a", options);
}

// By what they do.
inline const std::map<std::string, std::string>& chat_shapes() {
  static const std::map<std::string, std::string> shapes = {
      // Thoughts are printed of the last answer alone.
      {"last thoughts",
       "{%- for m in messages -%}{%- set c = m.content -%}"
       "{%- if m.role == 'assistant' and not loop.last -%}{%- set c = c.split('</think>')[-1].lstrip('\\n') -%}{%- "
       "endif -%}"
       "<|{{ m.role }}|>{{ c }}<|end|>{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"},
      // Thoughts are printed of no answer; what opens an answer opens its thoughts.
      {"no thoughts",
       "{%- for m in messages -%}<|{{ m.role }}|>"
       "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|end|>{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|assistant|><think>\n{% endif -%}"},
      // Answers without thoughts begin with the end of thoughts.
      {"closes thoughts",
       "{%- for m in messages -%}{%- if m.role == 'assistant' -%}<|assistant|>{%- if '</think>' in m.content -%}"
       "<think>{{ m.content.split('</think>')[0].split('<think>')[-1] }}</think>{{ m.content.split('</think>')[-1] }}"
       "{%- else -%}</think>{{ m.content }}{%- endif -%}<|end|>{%- else -%}<|{{ m.role }}|>{{ m.content }}<|end|>"
       "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|><think>{%- endif -%}"},
      // The next role's mark ends a message.
      {"next role",
       "{%- for m in messages -%}{%- if m.role == 'tool' -%}<|observation|>{{ m.content }}"
       "{%- elif m.role == 'assistant' -%}<|assistant|>{{ m.content }}{%- for c in m.tool_calls or [] -%}<tool_call>"
       "{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}</tool_call>"
       "{%- endfor -%}{%- else -%}<|{{ m.role }}|>{{ m.content }}{%- endif -%}{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"},
      // Answers in channels, with another end for the last one.
      {"channels",
       "{%- for m in messages -%}{%- if m.role == 'assistant' -%}"
       "{%- if m.thinking and loop.last -%}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>"
       "{%- endif -%}{%- if m.tool_calls -%}<|start|>assistant to={{ m.tool_calls[0].function.name }}<|channel|>"
       "commentary<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>{%- else -%}"
       "<|start|>assistant<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}"
       "{%- endif -%}{%- else -%}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{%- endif -%}{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"},
      // Turns alternate; the system's words become a part of the first question.
      {"alternates",
       "{%- if messages[0].role == 'system' -%}{%- set first = messages[0].content + '\\n\\n' -%}"
       "{%- set rest = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set rest = messages -%}{%- endif -%}"
       "{%- for m in rest -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}"
       "{{ raise_exception('roles must alternate') }}{%- endif -%}{%- if m.role == 'user' -%}"
       "[INST] {{ (first if loop.first else '') + m.content }} [/INST]{%- else -%}{{ ' ' + m.content }}</s>{%- endif "
       "-%}"
       "{%- endfor -%}"},
      // Calls as JSON, with the text of their arguments, where there is no content.
      {"text arguments",
       "{%- for m in messages -%}<|{{ m.role }}|>{%- if m.role == 'assistant' and m.content is none -%}"
       "{%- for c in m.tool_calls -%}{{ '<call>' + c.function.name + '\\n' + c.function.arguments + '</call>' }}"
       "{%- endfor -%}{%- else -%}{{ m.content }}{%- endif -%}<|end|>{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"},
      // Calls as JSON.
      {"json calls",
       "{%- for m in messages -%}<|{{ m.role }}|>{{ m.content }}{%- for c in m.tool_calls or [] -%}"
       "<call>{{ c.function | tojson }}</call>{%- endfor -%}<|end|>{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"},
      // Nothing is known of calls.
      {"no calls",
       "{%- for m in messages -%}<|{{ m.role }}|>{{ m.content }}<|end|>{%- endfor -%}"
       "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"},
  };
  return shapes;
}

}  // namespace lumen::model::templates
