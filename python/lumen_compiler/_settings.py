"""Names and types of options, made from the table of options by tools/option_table.py."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class GenerateOptions(TypedDict, total=False):
    """Options of Model.generate and Model.stream."""

    # Compute activations in f32 everywhere
    exact: bool
    # Tokens to generate; -1: no limit, -2: until the context is full
    max_tokens: int
    # Context length; 0: the model's
    context: int
    # Seed of sampling; -1: a different one each time
    seed: int
    # Never generate an end token
    ignore_end: bool
    # Text that ends the answer; repeatable
    stop: Sequence[str]
    # Temperature; 0: always the most likely token
    temperature: float
    # Sample from the k most likely tokens; 0: all
    top_k: int
    # Sample from the most likely tokens whose probabilities add up to this; 1: all
    top_p: float
    # Sample from tokens with at least this share of the highest probability
    min_p: float
    # Locally typical sampling: tokens near the expected surprise, with this total probability; 1: all
    typical_p: float
    # Sample from tokens whose logits are within this many standard deviations of the highest; 0: all
    top_n_sigma: float
    # Probability of XTC, which removes all likely tokens except the least likely of them
    xtc_probability: float
    # Probability above which a token is likely for XTC
    xtc_threshold: float
    # Penalty of repeated tokens; 1: none
    repeat_penalty: float
    # Number of last tokens that penalties look at; -1: all
    repeat_last: int
    # Subtracted once from the logit of a token that occurred before
    presence_penalty: float
    # Subtracted from a token's logit for each time that it occurred
    frequency_penalty: float
    # ID+NUMBER or ID-NUMBER: add to or subtract from a token's logit; ID-inf forbids it
    logit_bias: Mapping[int, float | None]
    # GBNF grammar that the answer must follow
    grammar: str
    # JSON schema that the answer must match; {}: any JSON
    json_schema: Mapping[str, Any]


class ChatOptions(GenerateOptions, total=False):
    """Options of Model.chat."""

    # Chat template: a Jinja file, plain, or chatml; default: the model's own
    template: str
    # Additional values for the template, as JSON
    template_values: Mapping[str, Any]


class LogitsOptions(TypedDict, total=False):
    """Options of Model.logits."""

    # Compute activations in f32 everywhere
    exact: bool
    # Context length; 0: the model's
    context: int


class PerplexityOptions(TypedDict, total=False):
    """Options of Model.perplexity."""

    # Compute activations in f32 everywhere
    exact: bool
    # Tokens per window
    length: int
    # Windows computed at once
    batch: int
    # Only the first windows; 0: all
    windows: int
    # Score every token of a window but the first; by default only the second half
    full: bool
    # Position of BOS if the tokenizer adds one: front (of the whole text and of each window), windows (of
    # each window only), none
    bos: str


class TrainOptions(TypedDict, total=False):
    """Options of train() and Trainer: flags of ``lumen train``."""

    # Folder with model families (*.lum) and recipes (*.toml)
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Threads; 0: all cores that this process may use
    threads: int
    # cpu, cuda[:N], hip[:N], or auto: a GPU if there is one
    device: str
    # Processor or GPU to generate code for; see `lumen doctor`
    machine: str
    # Folder of compiled kernels and tokenized data; 'off' keeps them in memory
    cache: str | os.PathLike[str]
    # Size of that folder, 20G by default; the least recently used files are deleted first; 0: no limit
    cache_limit: str
    # Use the cost model's plans only; by default slow kernels try other plans while they run
    no_tune: bool
    # Let cuBLASLt or hipBLASLt multiply matrices where a measurement shows that it is faster; rounding
    # differs
    libraries: bool
    # Print more messages
    verbose: bool
    # Print fewer messages
    quiet: bool
    # Replace the model and delete the checkpoints of another run in --out
    overwrite: bool
    overwrite_output_dir: bool
    # Continue from a checkpoint, with its own recipe; without a value, from the latest one in --out
    resume: bool | str | os.PathLike[str]
    resume_from_checkpoint: bool | str | os.PathLike[str]
    # Resume although data files, or a teacher, have changed
    allow_changed_data: bool
    # Resume with rates, steps, batches or data order that differ from the checkpoint's
    allow_changed_recipe: bool
    # A number of the objective, such as label_smoothing=0.1; repeatable
    objective_setting: str | Sequence[str]
    # The same as --objective-setting beta=..
    beta: float
    # tensorboard: the same as --tensorboard; none: nothing
    report_to: str
    # The same as --precision bf16
    bf16: bool
    # Quantization-aware training: quantize every matrix to this format in the forward pass
    format: str
    qat: str
    # Processes on this host that share each batch, one for each GPU with --device cuda; torchrun, srun and
    # mpirun start processes themselves
    ranks: float
    nproc_per_node: float
    num_processes: float
    # Print the resolved recipe and stop
    print_config: bool
    # Print the memory of each kind and the time that the run needs; train and write nothing
    plan: bool
    # Print the kernels of one step and their times at the end
    explain: bool
    # Model family of a new model
    family: str
    # Named size of a new model
    shape: str
    size: str
    # characters, bytes:N (byte pairs, N tokens), or a tokenizer file
    tokenizer: str | os.PathLike[str]
    # Share of the data kept for validation
    validation: float
    val_set_size: float
    val_size: float
    # Validation files, instead of a share of the data
    validation_data: str | os.PathLike[str]
    validation_file: str | os.PathLike[str]
    # Kind of rows
    form: str
    data_form: str
    # Tokens of chats that are learned
    train_on: str
    # Chat template by name or from a file; by default the model's own
    chat_template: str | os.PathLike[str]
    # Names of the columns: prompt=Q,completion=A
    columns: str
    # Shares of several data sets, such as 0.7,0.3
    mix: str
    interleave_probs: str
    # Pack several examples into one window, without attention between them
    packing: bool
    sample_packing: bool
    # What becomes of examples longer than a window
    overflow: str
    # Passes over the data, instead of --steps
    epochs: float
    num_train_epochs: float
    num_epochs: float
    # Stop with an error at a row that cannot be used
    strict: bool
    # Objective (loss): a name from the library, or a text NAME.lum; by default the cross entropy of tokens
    objective: str | os.PathLike[str]
    # Teacher of a distillation, in any format; by default the model without its adapter
    teacher: str | os.PathLike[str]
    teacher_model: str | os.PathLike[str]
    # Optimizer, or the name of your own
    optimizer: str
    optim: str
    # Decay of the first moment (Adam)
    beta1: float
    adam_beta1: float
    # Decay of the second moment (Adam)
    beta2: float
    adam_beta2: float
    # Epsilon in the optimizer's denominator (Adam)
    epsilon: float
    adam_epsilon: float
    # Of optimizers with one: how much of the last step's direction is kept
    momentum: float
    # Weight decay, for matrices only
    weight_decay: float
    # Clip the gradient's norm to this; 0: never
    max_grad_norm: float
    clip: float
    # Format of the optimizer's states of matrices between steps: f32, bf16, or any format with an encoder
    moments: str
    # Format of the second moments; by default that of --moments
    second_moments: str
    # Keep an exponential moving average of the weights with this decay; 0: none
    ema: float
    ema_decay: float
    # Train a LoRA adapter; the model's weights are frozen and keep the format of their file
    lora: bool
    use_peft: bool
    # Train a LoRA adapter with magnitudes of rows (DoRA)
    dora: bool
    use_dora: bool
    # Rank of the adapter: columns of B, rows of A
    lora_rank: int
    lora_r: int
    # The adapter is scaled by alpha / rank
    lora_alpha: float
    # Scale the adapter by alpha / sqrt(rank) (rsLoRA)
    rslora: bool
    use_rslora: bool
    # Weights with an adapter: roles, names or their ends (wq, q_proj, attn_q), patterns, or all-linear
    lora_targets: str
    lora_target: str
    lora_target_modules: str
    target_modules: str
    # Initial values: default; or pissa, pissa_niter_N, loftq, loftq_iter_N, which write a changed base model
    lora_init: str
    init_lora_weights: str
    # Format of that base model: base (each weight's own), a format or a mixture
    lora_base_type: str
    # Dropout of the adapter's inputs
    lora_dropout: float
    # Ratio of B's learning rate to A's (LoRA+)
    lora_plus: float
    loraplus_lr_ratio: float
    # Train the adapter through quantization to this format or mixture (base: each weight's own). model.gguf
    # then is exactly the trained model, which the run verifies
    ship: str
    # Also train scales and offsets of the shipped format
    ship_learned: bool
    # Also train a magnitude for each group of the shipped format (DL-QAT)
    ship_magnitudes: bool
    # Largest divergence of the shipped file from the trained model, in nats per token
    max_kl: float
    # The learning rate's course
    schedule: str
    lr_scheduler_type: str
    # Peak learning rate
    lr: float
    learning_rate: float
    # Learning rate at the end
    min_lr: float
    min_learning_rate: float
    # Steps to the peak
    warmup: int
    warmup_steps: int
    # Warmup as a share of all steps, rounded up
    warmup_ratio: float
    # Optimizer steps
    steps: int
    max_steps: int
    # Windows per step
    batch: int
    batch_size: int
    per_device_train_batch_size: int
    # Tokens per window; 0: the model's context
    length: int
    max_seq_length: int
    # Gradient accumulation: batches per step
    accumulate: int
    gradient_accumulation_steps: int
    # Steps between evaluations; 0: only at the end
    eval_every: int
    eval_steps: int
    # Steps between checkpoints; 0: only at the end
    save_every: int
    save_steps: int
    # Checkpoints kept; 0: all
    keep: int
    save_total_limit: int
    # Seed of the initial weights and the order of the data
    seed: int
    # What to do when a loss, gradient or weight is not finite: stop, or rollback (continue from the last good
    # checkpoint without the batches after it)
    on_nan: str
    # Treat a loss or gradient norm above this multiple of the last 50 steps' median in the same way; 0: never
    spike_factor: float
    # Most rollbacks of a run
    rollbacks: int
    # Float type of the operands of products and attention (with an 8-bit type: a scale for each tensor, and
    # bf16 for attention and the last product); sums are f32. Or a recipe whose [products] set each operand's
    # format
    precision: str | os.PathLike[str]
    # Gradient checkpointing: activations to compute again instead of keeping them: none, maps (elementwise
    # results only), layers, auto (what does not fit), or the memory that activations may take; results have
    # the same bits
    recompute: str
    gradient_checkpointing: str
    # Format of matrices between steps: f32, bf16, f16, or any format with an encoder; with stochastic
    # rounding, or to nearest with compensation
    param_type: str
    # How new values are rounded to it without compensation
    param_rounding: str
    # Keep the rounding error of parameters for the next step: in a format, or exact (with bf16: the lower
    # half of the f32)
    param_compensation: str
    # Format of activations as operands of products
    activation_format: str
    # Format of weights as operands of products; the stored weights do not change
    weight_format: str
    # Format of gradients as operands of products
    gradient_format: str
    # Format of queries, keys and values as operands of attention
    attention_format: str
    # What ranks hold in parts: none, states (of the optimizer; ZeRO 1), gradients (in addition; ZeRO 2),
    # parameters (in addition, each layer's gathered before use; ZeRO 3)
    shard: str
    zero: str
    zero_stage: str
    fsdp: str
    # Format in which ranks exchange sums of gradients: f32, or any format with an encoder; the error is added
    # in the next step
    reduce_type: str
    # Format in which ranks exchange changes of parameters, with --shard
    gather_type: str
    # Overlap exchanges with computation: on GPUs always possible, elsewhere with --shard parameters, which
    # then needs memory for two layers; same bits
    overlap_exchanges: bool
    overlap_comm: bool
    # With --tensor-parallel: split norms and residuals between these ranks by tokens, so that each keeps only
    # its share (sequence parallelism)
    sequence_parallel: bool
    sp: bool
    # Number of ranks that hold one model together (tensor parallelism): each has a part of the matrices,
    # gradients and optimizer states. It must divide --ranks; groups of this many ranks share each batch
    tensor_parallel: int
    tp: int
    # Format of the activations that are kept for the backward pass
    kept_format: str
    # Memory limit of the device: choose the cheapest --recompute and --offload that fit, and print them with
    # their cost
    memory: str
    # States to keep outside of the device, in a file of the run's folder, in another FOLDER or in host
    # memory: moments (the optimizer's states; same bits), layers (also parameters and gradients; a step goes
    # layer by layer and recomputes each), activations (what the backward pass reads; --recompute then decides
    # what is recomputed)
    offload: str | os.PathLike[str]
    # Tasks to run at evaluations: names or task files
    eval_tasks: str | os.PathLike[str]
    # At evaluations also report the KL divergence from the reference model on the validation data
    eval_kl: bool
    # Folder with the tasks' data
    eval_data: str | os.PathLike[str]
    # Most rows of each task; 0: all
    eval_limit: int
    # File with prompts, one on each line, that the model continues at evaluations
    sample_prompt: str
    # Most tokens of each of these continuations
    sample_tokens: int
    # Stop after this many evaluations without an improvement; 0: never
    early_stopping: int
    early_stopping_patience: int
    # Figure that decides which evaluation is best: validation_loss, or TASK.FIGURE of --eval-tasks
    metric: str
    metric_for_best_model: str
    # Write the model of the best evaluation, not of the last step
    load_best: bool
    load_best_model_at_end: bool
    # Also write event files for TensorBoard, to the folder tensorboard
    tensorboard: bool
    # Format or mixture of the written model
    output_type: str
    outtype: str
    # Also write the model with the adapter merged: base, a format or a mixture
    merge: str
    # Also write a Hugging Face folder
    hf: bool


class QuantizeOptions(TypedDict, total=False):
    """Options of quantize(): flags of ``lumen quantize``."""

    # Folder with model families (*.lum) and recipes (*.toml)
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Threads; 0: all cores that this process may use
    threads: int
    # cpu, cuda[:N], hip[:N], or auto: a GPU if there is one
    device: str
    # Processor or GPU to generate code for; see `lumen doctor`
    machine: str
    # Folder of compiled kernels and tokenized data; 'off' keeps them in memory
    cache: str | os.PathLike[str]
    # Size of that folder, 20G by default; the least recently used files are deleted first; 0: no limit
    cache_limit: str
    # Use the cost model's plans only; by default slow kernels try other plans while they run
    no_tune: bool
    # Let cuBLASLt or hipBLASLt multiply matrices where a measurement shows that it is faster; rounding
    # differs
    libraries: bool
    # Print more messages
    verbose: bool
    # Print fewer messages
    quiet: bool
    # Calibration text, .jsonl or folder; chats go through the model's template. Repeatable: each file gets
    # the same share of the windows. By default the built-in text
    file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    calibration: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Tokens per window of the calibration text
    ctx_size: float
    # Windows computed at once
    batch_size: float
    # Number of windows; 0: all
    chunks: float
    # Position of BOS: front, windows, none (as in `lumen perplexity`)
    bos: str
    # Float type of the operands of products during calibration
    calibration_precision: str
    # Allow OUT to be IN or a part of it; other files are replaced without this flag
    overwrite: bool
    # What to write: a GGUF file, a folder of plain weights, or one of packed weights
    output_format: str
    # Write several GGUF files of at most about this size
    split_max_size: str
    # Write several safetensors files of at most about this size
    max_shard_size: str
    # Format of the tensors that match a regular expression; repeatable
    tensor_type: str | Sequence[str]
    # Format of the output matrix
    output_tensor_type: str
    # Format of the token embedding
    token_embedding_type: str
    # Take options from a recipe, by name or from a .toml file; flags override it
    recipe: str | os.PathLike[str]
    # Importance matrix (`lumen imatrix`), for formats whose scales depend on it: fit(x, w)
    imatrix: str | os.PathLike[str]
    # Format of tensors whose rows do not divide into blocks; repeatable, tried in order. Without it such a
    # tensor is an error
    fallback: str | Sequence[str]
    # The same format for every matrix
    pure: bool
    # Do not quantize the output matrix
    leave_output_tensor: bool
    # Train the tables of the formats on this model's weights, one for each format; the file contains them
    train_tables: bool
    # Accept weights that are already quantized
    allow_requantize: bool
    # Print the sizes; compute and write nothing
    dry_run: bool
    # Format of the activations that layers' matrices read at run time. Without TYPE, only activations are
    # quantized. none removes the model's own settings for activations and caches
    activations: str
    # dynamic: scales are computed at run time; static: scales are calibrated on the text and stored in the
    # file
    activation_scales: str
    # Range of static scales: the largest value seen, or least squared error (error), which clips outliers
    activation_reach: str
    # Format of weights and activations of projections in which single tokens have outliers (spikes)
    keep_spikes: str
    # A projection has spikes if a window's largest token is this many times its median token
    spike_ratio: float
    # Keep only projections that lower the KL divergence by this many nats (0.003), measured one after
    # another; 0: all with spikes
    spike_gain: float
    # For control experiments: keep as many other projections, chosen by this seed
    keep_random: float
    # Format of the keys in the KV cache, stored in the file
    cache_type_k: str
    ctk: str
    # Format of the values in the KV cache, stored in the file
    cache_type_v: str
    ctv: str
    # Scales of keys and values: computed at run time (dynamic), or calibrated on the text, one for each layer
    # (static)
    cache_scales: str
    # Round layer by layer; names between commas, the last one rounds; awq: divides channels of activations by
    # mean|x|^a, a where outputs lose least; smoothquant: divides channels of activations by max|x|^a /
    # max|w|^(1-a), a of --smoothing-strength; even-keys: divides channels of keys by their size, for caches
    # of few bits (queries are multiplied); rtn: round to nearest, scales by each format's own search;
    # imatrix: round to nearest, scales by importance where the format has a search for that; gptq: error
    # feedback by second moments of the inputs (--damp-percent, --desc-act); gptaq: gptq that also corrects
    # the error of earlier layers; clip: round to nearest, each group's largest numbers clamped first; hqq:
    # fields fitted to sparse errors; needs no text; autoround: values go to either neighbour and ranges
    # shrink, by signs of a layer's gradients; adaround: values go to either neighbour, by a layer's gradients
    # through soft rounding; omniquant: ranges are clipped by a layer's gradients (learnable weight clipping);
    # block-ap: values and ranges are trained by a layer's gradients, through the rounding
    strategy: str
    # Damping of Hessians, as a share of the mean of the diagonal
    damp_percent: float
    # Quantize columns in the order of their importance
    desc_act: bool
    # Steps of methods that learn; 0: the default of each
    iterations: float
    # Initial learning rate of these methods; 0: the default of each
    rate: float
    # Windows of the text in each of these steps
    step_windows: float
    # How much of the activations' outliers SmoothQuant moves into weights
    smoothing_strength: float
    # Add a branch of this rank to every quantized matrix of the layers, in the same file
    low_rank: float
    # svdquant: branch of the weight, whose remainder is quantized; eora, lqer: branch of the quantization
    # error
    low_rank_method: str
    # Format of these branches
    low_rank_format: str
    # Choose a format for every weight: 4.2bpw, 3.5GB, 900MiB, kl=0.02, ppl=+1%, 12ms (products of a token)
    budget: str
    # Formats to choose among, or gguf (the default: those with a GGUF type), or any: also formats that only
    # Lumen reads, without those that others beat
    candidates: str | Sequence[str]
    # Criteria of the choice: loss (predicted), or outputs (also errors of layer outputs, attention and
    # largest values)
    criteria: str
    # Allow only formats whose products are on this machine as fast as with this format
    as_fast_as: str
    # Windows of the text on which costs of formats are predicted
    score_chunks: float
    # Format of the most important columns of weights; with --budget one of several
    high_impact: str | Sequence[str]
    # Share of these columns: 0.05 by default, or for weights that match a regular expression; with --budget
    # the shares to choose among (0.02,0.05,0.1,0.15,0.2)
    high_ratio: str | Sequence[str]
    # Formats of the experts of a mixture, from most to fewest bits; important experts get more
    experts: str | Sequence[str]
    # Largest mean bits of the experts; by default their classes decide
    expert_bits: float
    # Do not compare the result with the model before (KL divergence, perplexity) on held-out text
    no_measure: bool
    # Write what was done to each weight, and with --budget what was chosen and measured, as JSON
    json: str | os.PathLike[str]
    # Write this report as a page
    html: str | os.PathLike[str]
    # Formats or mixtures that the report of --budget also shows. They are quantized with an importance matrix
    # of the same text, and measured on the same windows
    compare_formats: str | Sequence[str]
    beside: str | Sequence[str]
    # Folder for progress until OUT is written; OUT.work by default
    work_folder: str | os.PathLike[str]
    # Discard the progress of an earlier run in the work folder
    restart: bool


class EvaluateOptions(TypedDict, total=False):
    """Options of evaluate(): flags of ``lumen eval``."""

    # Folder with model families (*.lum) and recipes (*.toml)
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Threads; 0: all cores that this process may use
    threads: int
    # cpu, cuda[:N], hip[:N], or auto: a GPU if there is one
    device: str
    # Processor or GPU to generate code for; see `lumen doctor`
    machine: str
    # Folder of compiled kernels and tokenized data; 'off' keeps them in memory
    cache: str | os.PathLike[str]
    # Size of that folder, 20G by default; the least recently used files are deleted first; 0: no limit
    cache_limit: str
    # Use the cost model's plans only; by default slow kernels try other plans while they run
    no_tune: bool
    # Let cuBLASLt or hipBLASLt multiply matrices where a measurement shows that it is faster; rounding
    # differs
    libraries: bool
    # Print more messages
    verbose: bool
    # Print fewer messages
    quiet: bool
    # Adapter to apply to the model: a GGUF file or a PEFT folder; repeatable
    lora: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # The same as --lora, as other programs spell it
    lora_scaled: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Use weights from the memory-mapped file; --no-mmap copies them into memory, in huge pages if possible,
    # which processors read faster
    mmap: bool
    no_mmap: bool
    # Compute activations in f32 everywhere
    exact: bool
    # File with a task of your own (docs/guide/evaluating.md); repeatable
    task_file: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    # Allow tasks to name files outside of that folder, through .., links or absolute paths
    allow_outside_data: bool
    # Folder with the tasks' data
    data: str | os.PathLike[str]
    # List the tasks
    list: bool
    # Examples before each question; by default the task's number
    num_fewshot: int
    # Only the first rows; 0: all
    limit: int
    # Seed that chooses the examples
    seed: str
    # Context length; 0: the model's
    ctx_size: int
    # Sequences generated at once
    parallel: int
    # Write prompts and answers to this file, as JSON lines
    log_samples: str | os.PathLike[str]
