"""Loss scaling for float16: an optimizer around an optimizer.

| module | what it answers |
|---|---|
| settings | how may the scale start, move and be bounded |
| rule | what is the scale after a step that was applied, or skipped |
| finite, gradients | can these gradients be applied |
| agreement | do all replicas and workers say so |
| shadows | what does a skip have to give back |
| ledger | where are scale and counts kept, and when is a run stuck |
| wrapper | whose attribute is it, the wrapper's or the inner one's; what do files keep |
| advice | is it used wrongly |
| state | what happened so far |
| optimizer | the class that asks them all |
| factory | which optimizer needs it |
"""
