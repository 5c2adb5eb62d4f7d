---
base: b
---
Prose.
::instruction::
### Q
one
### A
two
::preference::
### Prompt
p
### Chosen
c
### Rejected
r
::image::
