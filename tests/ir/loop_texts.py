"""Loop-level and kernel-level functions as text, for tests."""

SUM_OF_EXP = """
loop.func @sum_of_exp(%x: buffer<[s0]xf32, global>, %y: buffer<[s0]xbf16, global>, %total: buffer<1xf32, global>,
                      %n: index) symbols(s0) {
  %lo = "loop.index"() {value = 0} : () -> index
  %hi = "loop.index"() {value = s0} : () -> index
  %init = "scalar.const"() {value = 0.0, dtype = f32} : () -> f32
  %sum = "loop.for"(%lo, %hi, %init) {kind = "vector", width = 8, unroll = 2, combiners = ["add"]} ({
  ^(%i: index, %acc: f32):
    %v = "loop.load"(%x, %i) {strides = [1]} : (buffer<[s0]xf32, global>, index) -> f32
    %e = "scalar.fn"(%v) {fn = "exp"} : (f32) -> f32
    %b = "scalar.cast"(%e) {dtype = bf16} : (f32) -> bf16
    "loop.store"(%y, %b, %i) {strides = [1]} : (buffer<[s0]xbf16, global>, bf16, index) -> ()
    %next = "scalar.fn"(%acc, %e) {fn = "add"} : (f32, f32) -> f32
    yield %next
  }) : (index, index, f32) -> f32
  "loop.store"(%total, %sum, %lo) {strides = [1]} : (buffer<1xf32, global>, f32, index) -> ()
  return
}
"""

# Rows in parallel, each normalised by its maximum through a local row of scratch.
ROW_MAX = """
loop.func @row_max(%x: buffer<[s0*4]xf32, global>, %y: buffer<[s0*4]xf32, global>, %n: index) symbols(s0) {
  %zero = "loop.index"() {value = 0} : () -> index
  %rows = "loop.index"() {value = s0} : () -> index
  %cols = "loop.index"() {value = 4} : () -> index
  "loop.for"(%zero, %rows) {kind = "parallel"} ({
  ^(%r: index):
    %row = "loop.alloc"() {dtype = f32, size = 4} : () -> buffer<4xf32, local>
    %low = "scalar.const"() {value = -inf, dtype = f32} : () -> f32
    %top = "loop.for"(%zero, %cols, %low) {kind = "vector", width = 4, combiners = ["maximum"]} ({
    ^(%c: index, %m: f32):
      %v = "loop.load"(%x, %r, %c) {strides = [4, 1]} : (buffer<[4*s0]xf32, global>, index, index) -> f32
      "loop.store"(%row, %v, %c) {strides = [1]} : (buffer<4xf32, local>, f32, index) -> ()
      %next = "scalar.fn"(%m, %v) {fn = "maximum"} : (f32, f32) -> f32
      yield %next
    }) : (index, index, f32) -> f32
    "loop.for"(%zero, %cols) {kind = "vector", width = 4} ({
    ^(%c: index):
      %v = "loop.load"(%row, %c) {strides = [1]} : (buffer<4xf32, local>, index) -> f32
      %d = "scalar.fn"(%v, %top) {fn = "sub"} : (f32, f32) -> f32
      "loop.store"(%y, %d, %r, %c) {strides = [4, 1]} : (buffer<[4*s0]xf32, global>, f32, index, index) -> ()
      yield
    }) : (index, index) -> ()
    yield
  }) : (index, index) -> ()
  return
}
"""

# A running sum through memory: each iteration reads what the one before wrote.
PREFIX = """
loop.func @prefix(%x: buffer<8xi32, global>) {
  %one = "loop.index"() {value = 1} : () -> index
  %end = "loop.index"() {value = 8} : () -> index
  "loop.for"(%one, %end) ({
  ^(%i: index):
    %before = "loop.load"(%x, %i) {strides = [1], offset = -1} : (buffer<8xi32, global>, index) -> i32
    %here = "loop.load"(%x, %i) {strides = [1]} : (buffer<8xi32, global>, index) -> i32
    %sum = "scalar.fn"(%before, %here) {fn = "add"} : (i32, i32) -> i32
    "loop.store"(%x, %sum, %i) {strides = [1]} : (buffer<8xi32, global>, i32, index) -> ()
    yield
  }) : (index, index) -> ()
  return
}
"""

# y[i] = x[idx[i]] where 0 <= idx[i] < 5, a check that names the op, and a masked load.
GATHER = """
loop.func @gather(%x: buffer<5xf32, global>, %idx: buffer<3xi64, global>, %y: buffer<3xf32, global>) {
  %zero = "loop.index"() : () -> index
  %end = "loop.index"() {value = 3} : () -> index
  %size = "scalar.const"() {value = 5, dtype = i64} : () -> i64
  %none = "scalar.const"() {value = 0, dtype = i64} : () -> i64
  "loop.for"(%zero, %end) ({
  ^(%i: index):
    %k = "loop.load"(%idx, %i) {strides = [1]} : (buffer<3xi64, global>, index) -> i64
    %ok = "scalar.fn"(%k, %size) {fn = "lt"} : (i64, i64) -> i1
    "loop.check"(%ok) {number = 7, message = "index out of range"} : (i1) -> ()
    %some = "scalar.fn"(%k, %none) {fn = "ge"} : (i64, i64) -> i1
    %j = "loop.index_cast"(%k) : (i64) -> index
    %v = "loop.load"(%x, %j, %some) {strides = [1], masked = true} : (buffer<5xf32, global>, index, i1) -> f32
    "loop.if"(%some) ({
    ^():
      "loop.store"(%y, %v, %i) {strides = [1]} : (buffer<3xf32, global>, f32, index) -> ()
      yield
    }) : (i1) -> ()
    yield
  }) : (index, index) -> ()
  return
}
""".replace('"loop.index"() : ()', '"loop.index"() {value = 0} : ()')

# out[b, j, i] = 2 * sum_k a[b, i, k] * w[k, j]: strides transpose the result.
CONTRACT = """
loop.func @contract(%a: buffer<24xf32, global>, %w: buffer<20xf32, global>, %out: buffer<30xf32, global>) {
  "loop.contract"(%a, %w) {batch = [2], m = [3], n = [5], k = [4], a_batch = [12], a_m = [4], a_k = [1], b_batch = [0],
                           b_k = [5], b_n = [1], accumulate = f32, tile = TileShape{rows = 8, cols = 16}} ({
  ^(%acc: f32, %b: index, %i: index, %j: index):
    %two = "scalar.const"() {value = 2.0, dtype = f32} : () -> f32
    %v = "scalar.fn"(%acc, %two) {fn = "mul"} : (f32, f32) -> f32
    "loop.store"(%out, %v, %b, %j, %i) {strides = [15, 3, 1]} : (buffer<30xf32, global>, f32, index, index, index) -> ()
    yield
  }) : (buffer<24xf32, global>, buffer<20xf32, global>) -> ()
  return
}
"""

LOOP_TEXTS = {"sum_of_exp": SUM_OF_EXP, "row_max": ROW_MAX, "prefix": PREFIX, "gather": GATHER, "contract": CONTRACT}
