"""Loads and stores of emitted kernels: own elements, gathers, scattered writes, sums, local arrays."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from kinema.lang.emit.text import DENSE, LANES, PACKET, Writer, identifier
from kinema.lang.ir.ssa import ArrayRef, Load, Local, Store, Value
from kinema.lang.runtime.native import GROUP


class Memory(Writer):
    """Adds the access to arrays."""

    def index(self, array: ArrayRef, index: Value, line: int) -> str:
        """The index expression, made safe in inactive lanes and checked in a checked build."""
        text = self.ref(index)
        # Tables hold zeros in lanes beyond the last element, but computed indices there may point anywhere.
        mask = self.active() if self.by_element and index not in self.tables else self.mask
        if self.vector(index) and mask is not None and (index is not self.k.index or array.role == "local"):
            text = f"sel({mask}, {text}, splat<I>(0))"
        if self.check:
            mask = self.active() if self.vector(index) else "true"
            local = array.role == "local"
            length = f"{self.array_names[array]}_length" if local else f"call->length[{self.k.arrays.index(array)}]"
            name = self.fresh("i")
            self.put(
                f"const auto {name} = checked_index(call, {text}, {length}, {mask}, e0, {self.site(array, line)});"
            )
            return name
        return text

    def track(self, array: ArrayRef, text: str, index: Value, line: int, write: bool) -> None:
        if array not in self.tracked:
            return
        by_world = self.layouts[array] == LANES and self.w > 1
        if by_world and not self.vector(index):
            text = f"splat<I>({text})"
        mask = self.active() if by_world or self.vector(index) else "true"
        base, padded = self.array_names[array], f"{self.stride(array)}, {'W' if by_world else '1'}"
        if write:
            self.put(f"touched.write(call, {base}, {text}, {padded}, {mask}, e0, {self.site(array, line)});")
        else:
            self.put(f"touched.read({base}, {text}, {padded}, {mask});")

    def stride(self, array: ArrayRef) -> int:
        """The stride between elements, in scalars."""
        return len(array.kinds) if self.layouts.get(array) == DENSE else array.padded

    def are_triples(self, array: ArrayRef) -> bool:
        """Whether elements are three scalars without padding: code must not touch anything beyond them."""
        return self.stride(array) == 3

    def own_place(self, array: ArrayRef, component: int, first: str = "e0") -> str:
        """Offset of a component of a packet that starts at element `first`, if its lanes are contiguous."""
        if self.layouts[array] != PACKET:
            return first
        return f"({first} & ~int64_t(15)) * {len(array.kinds)} + ({first} & 15) + {16 * component}"

    def declare_results(self, node: Load) -> list[str]:
        names = []
        for r in node.results:
            name = self.fresh()
            self.names[r] = name
            names.append(name)
        return names

    def load(self, node: Load) -> None:
        array, n = node.array, len(node.array.kinds)
        own = self.by_element and node.index is self.k.index
        text = self.index(array, node.index, node.line)
        self.track(array, text, node.index, node.line, write=False)
        if array.role == "local":
            self.load_local(node, text)
            return
        base, layout, stride = self.array_names[array], self.layouts[array], self.stride(array)
        triples = "dense_" if self.are_triples(array) else ""
        names = self.declare_results(node)
        integer = "i" in array.kinds
        wide = self.vector(node.results[0])
        kind = self.type_of(array.kinds[0], wide)
        if layout == LANES:
            for c, name in enumerate(names):
                self.put(f"const {kind} {name} = {self.lane_load(base, text, n, c, integer, self.vector(node.index))};")
        elif own and layout == PACKET:
            for c, name in enumerate(names):
                call = f"load_int<{kind}>" if integer else f"load<{kind}>"
                self.put(f"const {kind} {name} = {call}({base} + {self.own_place(array, c)});")
        elif own and (n == 1 or integer or self.w == 1):
            for c, name in enumerate(names):
                if n == 1:
                    call = f"load_int<{kind}>" if integer else f"load<{kind}>"
                    self.put(f"const {kind} {name} = {call}({base} + e0);")
                elif integer and wide:
                    self.put(f"const {kind} {name} = gather_int<I>({base} + {c}, e * splat<I>(U({array.padded})));")
                else:
                    self.put(f"const {kind} {name} = {base}[e0 * {stride} + {c}];")
        elif own:
            self.quads(names, lambda q: f"{base} + e0 * {stride} + {4 * q}", f"{triples}load", stride, "")
        elif self.vector(node.index):
            if integer or n == 1:
                call = "gather_int<I>" if integer else "gather<F>"
                scale = f"{text} * splat<I>(U({array.padded}))" if array.padded > 1 else text
                for c, name in enumerate(names):
                    self.put(f"const {kind} {name} = {call}({base} + {c}, {scale});")
            else:
                self.quads(names, lambda q: f"{base} + {4 * q}", f"{triples}rows", None, self.offset(text, stride))
        else:
            for c, name in enumerate(names):
                self.put(f"const {kind} {name} = {base}[int64_t({text}) * {stride} + {c}];")

    def offset(self, index: str, padded: int) -> str:
        """Name of the array of lane offsets of an index into padded elements; all uses in scope share it."""
        key = (index, padded)
        found = next((scope[key] for scope in self.offsets if key in scope), None)
        if found is None:
            found = self.offsets[-1][key] = self.fresh("off")
            scaled = f"{index} * splat<I>(U({padded}))" if padded > 1 else index
            self.put(f"alignas(64) U {found}[W]; keep_offsets<I>({found}, {scaled});")
        return found

    def quads(self, names: list[str], base: Any, call: str, stride: int | None, index: str) -> None:
        """Load padded elements, four (or three, two) scalars at a time, transposed in registers."""
        where = index if stride is None else f"{stride}{index}"
        for q in range(0, len(names), 4):
            part = names[q : q + 4]
            if len(names) == 2:
                self.put(f"F {', '.join(part)}; {call}2({base(0)}, {where}, {', '.join(part)});")
                continue
            size = 3 if len(part) == 3 else 4
            spare = [self.fresh("pad") for _ in range(size - len(part))]
            every = ", ".join(part + spare)
            unused = "".join(f" (void){s};" for s in spare)
            self.put(f"F {every}; {call}{size}({base(q // 4)}, {where}, {every});{unused}")

    def lane_load(self, base: str, text: str, n: int, c: int, integer: bool, varying_index: bool) -> str:
        if varying_index:
            at = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
            return f"gather_int<I>({base} + {c} * W, {at})" if integer else f"gather<F>({base} + {c} * W, {at})"
        at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
        return f"load_int<I>({at})" if integer else f"load<F>({at})"

    def load_local(self, node: Load, text: str) -> None:
        base, n, lanes = self.array_names[node.array], len(node.array.kinds), self.lanes_of(node.array)
        for c, r in enumerate(node.results):
            at = f"{base} + (int64_t({text}) * {n} + {c}) * {lanes}"
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * {lanes})){' + iota<I>()' if lanes == 'W' else ''}"
                got = f"gather_local<{'F' if r.kind == 'f' else 'I'}>({base} + {c} * {lanes}, {lane})"
                got = f"({got} != splat<I>(0))" if r.kind == "b" else got
            elif lanes == "1":
                got = f"{'0 != ' if r.kind == 'b' else ''}*({at})"
            elif r.kind == "b":
                got = f"peek_mask<M>({at})"
            else:
                got = f"peek<{'F' if r.kind == 'f' else 'I'}>({at})"
            self.define(r, got)

    def store_local(self, node: Store, text: str) -> None:
        base, n = self.array_names[node.array], len(node.array.kinds)
        for c, v in enumerate(node.values):
            if self.lanes_of(node.array) == "1":
                self.put(f"{base}[int64_t({text}) * {n} + {c}] {'+' if node.mode == 'add' else ''}= {self.ref(v)};")
                continue
            value = self.ref(v, self.w > 1)
            at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
            mask = self.mask or "splat_mask<M>(true)"
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
                stored = f"sel({value}, splat<I>(1), splat<I>(0))" if v.kind == "b" else value
                self.put(f"scatter_{node.mode}({base} + {c} * W, {lane}, {stored}, {mask});")
                continue
            if v.kind == "b":
                kept = value if self.mask is None else f"sel({self.mask}, {value}, peek_mask<M>({at}))"
                self.put(f"poke_mask<M>({at}, {kept});")
                continue
            lane_type = "F" if v.kind == "f" else "I"
            old = f"peek<{lane_type}>({at})"
            new = f"{old} + {value}" if node.mode == "add" else value
            kept = new if self.mask is None else f"sel({self.mask}, {new}, {old})"
            self.put(f"store<{lane_type}>({at}, {kept});")

    def local(self, node: Local) -> None:
        name = self.fresh(identifier(node.array.name) + "_")
        self.array_names[node.array] = name
        n = len(node.array.kinds)
        number = "T" if "f" in node.array.kinds else "U"
        size = self.ref(node.size)
        if self.vector(node.size):
            size = f"hmax({size})"
        if self.check:
            self.put(f"const int64_t {name}_length = int64_t({size});")
        self.put(f"const int64_t {name}_size = int64_t({size}) * {n} * {self.lanes_of(node.array)};")
        self.put(f"{number}* const {name} = arena_take<{number}>(call->arena, {name}_size > 0 ? {name}_size : 1);")
        self.put(f"__builtin_memset({name}, 0, sizeof({number}) * ({name}_size > 0 ? {name}_size : 0));")

    def store(self, node: Store) -> None:
        array = node.array
        own = self.by_element and node.index is self.k.index
        text = self.index(array, node.index, node.line)
        self.track(array, text, node.index, node.line, write=True)
        if self.check and array.role != "local" and "f" in array.kinds:
            for v in node.values:
                mask = self.active() if self.vector(v) else "true"
                self.put(f"checked_finite(call, {self.ref(v)}, {mask}, e0, {self.site(array, node.line)});")
        if array in self.sums:
            self.accumulate(node)
        elif array.role == "local":
            self.store_local(node, text)
        elif self.layouts[array] == LANES:
            self.store_lanes(node, text)
        elif own and self.w > 1:
            self.store_own(node)
        elif self.vector(node.index):
            self.scatter(node, text)
        elif self.by_element and self.w > 1 and not self.loops and node.index.op == "const":
            self.scatter(node, f"splat<I>({text})")  # in the order of elements, together with other scatters
        elif self.by_element and self.w > 1:
            self.add_lanes(node, text)
        else:
            base, sign = self.array_names[array], "+=" if node.mode == "add" else "="
            at = f"(e0 & ~int64_t(15)) * {len(array.kinds)} + (e0 & 15)"
            for c, v in enumerate(node.values):
                place = (
                    f"{at} + {16 * c}"
                    if self.layouts[array] == PACKET
                    else f"int64_t({text}) * {self.stride(array)} + {c}"
                )
                self.put(f"{base}[{place}] {sign} {self.ref(v)};")

    def add_lanes(self, node: Store, text: str) -> None:
        """Accumulate all lanes into one element: adds their sum."""
        array, values = node.array, [self.ref(v, True) for v in node.values]
        place = f"{self.array_names[array]} + int64_t({text}) * {array.padded}"
        if array.padded < 4 or "f" not in array.kinds:
            for c, value in enumerate(values):
                self.put(f"accumulate({place} + {c}, {value}, {self.active()});")
            return
        for q in range(0, len(values), 4):
            part = [*values[q : q + 4], *["splat<F>(T(0))"] * (4 - len(values[q : q + 4]))]
            later = "later." if self.sums_wait else ""
            self.put(f"{later}accumulate4({place} + {q}, {', '.join(part)}, {self.active()});")

    @cached_property
    def sums_wait(self) -> bool:
        """Whether sums of lanes wait for the end of the packet: in wide kernels that add inside loops."""
        return self.wide and any(u.kind == "add" and u.index == "uniform" and u.in_loop for u in self.uses)

    def store_lanes(self, node: Store, text: str) -> None:
        base, n = self.array_names[node.array], len(node.array.kinds)
        integer = "i" in node.array.kinds
        for c, v in enumerate(node.values):
            value = self.ref(v, self.w > 1)
            if self.vector(node.index):
                lane = f"{text} * splat<I>(U({n} * W)) + iota<I>()"
                self.put(f"scatter_{node.mode}({base} + {c} * W, {lane}, {value}, {self.active()});")
                continue
            at = f"{base} + (int64_t({text}) * {n} + {c}) * W"
            if integer:
                self.put(f"store_int({at}, {value}, {self.active()});")
                continue
            old = f"load<F>({at})"
            new = f"{old} + {value}" if node.mode == "add" else value
            self.put(f"store<F>({at}, {new if self.mask is None else f'sel({self.mask}, {new}, {old})'});")

    def store_own(self, node: Store) -> None:
        array, n = node.array, len(node.array.kinds)
        base, layout = self.array_names[array], self.layouts[array]
        values = [self.ref(v, True) for v in node.values]
        full, mask = ("full", "alive") if self.mask is None else ("false", self.active())
        add = node.mode == "add"
        if "i" in array.kinds:
            for c, v in enumerate(values):
                place = f"(e0 & ~int64_t(15)) * {n} + (e0 & 15) + {16 * c}" if layout == PACKET else "e0"
                if layout != PACKET and n > 1:
                    self.put(f"scatter_set({base} + {c}, e * splat<I>(U({array.padded})), {v}, {mask});")
                else:
                    self.put(f"put_int({base} + {place}, {v}, {full}, {mask});")
        elif layout == PACKET or n == 1:
            at = f"(e0 & ~int64_t(15)) * {n} + (e0 & 15)" if layout == PACKET else "e0"
            for c, v in enumerate(values):
                place = f"{base} + {at} + {16 * c}"
                self.put(f"put({place}, {f'load<F>({place}) + ' if add else ''}{v}, {full}, {mask});")
        else:
            self.store_own_quads(node, values, full, mask, add)

    def store_own_quads(self, node: Store, values: list[str], full: str, mask: str, add: bool) -> None:
        array = node.array
        base = self.array_names[array]
        zero = "splat<F>(T(0))"
        for q in range(0, len(values), 4):
            part = values[q : q + 4]
            size = 2 if len(values) == 2 else 4
            place = f"{base} + e0 * {self.stride(array)} + {q}"
            if self.are_triples(array):
                self.put(f"dense_put3({place}, {', '.join(part)}, {full}, {mask});")
                continue
            if add:
                old = [self.fresh("old") for _ in range(size)]
                self.put(f"F {', '.join(old)}; load{size}({place}, {array.padded}, {', '.join(old)});")
                part = [f"{o} + {p}" for o, p in zip(old, part, strict=False)]
            part += [zero] * (size - len(part))
            self.put(f"put{size}({place}, {array.padded}, {', '.join(part)}, {full}, {mask});")

    def accumulate(self, node: Store) -> None:
        """Add to a sum over elements: to one of sixteen partial sums, by the index of the element."""
        index = node.index.attr
        key = (node.array, index)
        if key not in self.accumulators:
            self.accumulators[key] = f"sum_{identifier(node.array.name)}_{index}"
        name = self.accumulators[key]
        for c, v in enumerate(node.values):
            value = self.ref(v, self.w > 1)
            if self.by_element:
                if self.w == 1:
                    self.put(f"{name}[{16 * c} + (e0 & 15)] += {value};")
                    continue
                if self.mask is None:
                    value = f"(full ? {value} : sel(alive, {value}, splat<F>(T(0))))"
                else:
                    value = f"sel({self.active()}, {value}, splat<F>(T(0)))"
                place = f"{name} + {16 * c} + (e0 & 15)"
            else:
                if self.mask is not None:
                    value = f"sel({self.mask}, {value}, splat<F>(T(0)))"
                place = f"{name} + ({16 * c} + (e0 & 15)) * W"
            self.put(f"store<F>({place}, load<F>({place}) + {value});")

    # -- scattered writes ---------------------------------------------------------------------------------------

    def scatter(self, node: Store, text: str) -> None:
        """Write at a varying index: element by element at the end of the packet; immediately inside loops."""
        if self.loops:
            self.scatter_now(node, text)
            return
        at = len(self.deferred)
        names = [f"out{at}_{c}" for c in range(len(node.values))]
        mask = None
        if self.mask is None and len(self.offsets) == 1:
            index = self.offset(text, self.stride(node.array))
            for name, v in zip(names, node.values, strict=True):
                self.put(f"const {self.type_of(v.kind, True)} {name} = {self.ref(v, True)};")
        else:
            kinds = [self.type_of(v.kind, True) for v in node.values]
            self.hoisted += [f"{k} {name} = splat<{k}>(0);" for k, name in zip(kinds, names, strict=True)]
            mask, index = self.kept_mask(), self.kept_offsets(text, self.stride(node.array))
            for name, v in zip(names, node.values, strict=True):
                self.put(f"{name} = {self.ref(v, True)};")
        self.schedule_scatter(node, names, index, mask, at)
        self.schedule_rows(node, index, mask)

    def kept_mask(self) -> str:
        """Name of the bit mask of this block's active lanes, for the end of the packet; 0 if the block did not run."""
        known = self.kept[-1]
        if "mask" not in known:
            known["mask"] = self.fresh("on")
            self.hoisted.append(f"unsigned {known['mask']} = 0;")
            self.put(f"{known['mask']} = mask_bits({self.mask or 'splat_mask<M>(true)'});")
        return known["mask"]

    def kept_offsets(self, index: str, padded: int) -> str:
        """Like `offset`, for the end of the packet."""
        known, scaled = self.kept[-1], f"{index} * splat<I>(U({padded}))" if padded > 1 else index
        if scaled not in known:
            known[scaled] = self.fresh("at")
            self.hoisted.append(f"alignas(64) U {known[scaled]}[W];")
            self.put(f"keep_offsets<I>({known[scaled]}, {scaled});")
        return known[scaled]

    def schedule_scatter(self, node: Store, names: list[str], index: str, mask: str | None, at: int) -> None:
        array, n = node.array, len(node.values)
        base = self.array_names[array]
        setup: list[str] = []
        writes: list[str] = []
        if "i" in array.kinds or n == 1:
            for c, name in enumerate(names):
                kind = "T" if "f" in array.kinds else "U"
                lane = "F" if "f" in array.kinds else "I"
                setup.append(f"alignas(64) {kind} s{at}_{c}[W]; store<{lane}>(s{at}_{c}, {name});")
                writes.append(f"{base}[{index}[l] + {c}] {'+=' if node.mode == 'add' else '='} s{at}_{c}[l];")
        else:
            size = 2 if n == 2 else 4
            zero = "splat<F>(T(0))"
            for q in range(0, n, 4):
                part = names[q : q + 4] + [zero] * (size - len(names[q : q + 4]))
                setup.append(
                    f"alignas(64) T s{at}_{q}[W * {size}]; transpose_store{size}<F>(s{at}_{q}, {', '.join(part)});"
                )
                place, source = f"{base} + {index}[l] + {q}", f"s{at}_{q} + {size} * l"
                if node.mode == "add":
                    writes.append(f"add{size}({place}, {source});")
                else:
                    stored = 3 if self.are_triples(array) else size
                    writes.append(f"__builtin_memcpy({place}, {source}, {stored} * sizeof(T));")
        self.deferred_setup += setup
        self.deferred.append((mask, "{ " + " ".join(writes) + " }"))

    def schedule_rows(self, node: Store, index: str, mask: str | None) -> None:
        """Write packets whose writes do not collide: row by row, while the values are in registers."""
        n = len(node.values)
        if mask or node.mode != "add" or n == 1 or "i" in node.array.kinds or not 1 < self.w <= GROUP or self.wide:
            self.only_lane_by_lane = True
            return
        negated = all(v.op == "neg" for v in node.values)
        values = [self.ref(v.args[0] if negated else v, True) for v in node.values]
        size, sign = 2 if n == 2 else 4, -1 if negated else 1
        for q in range(0, n, 4):
            part = values[q : q + 4] + ["splat<F>(T(0))"] * (size - len(values[q : q + 4]))
            place = f"{self.array_names[node.array]} + {q}"
            self.deferred_rows.append(f"add_rows{size}<{sign}>({place}, {index}, {', '.join(part)});")

    def scatter_lines(self) -> list[str]:
        if not self.deferred:
            return []
        if self.only_lane_by_lane:
            return self.lane_by_lane()
        writes = " ".join(w for _, w in self.deferred)
        # The rare case is a separate function, so that it takes no registers from the common one.
        return [
            "    if (__builtin_expect(full && apart(call, e0), 1)) {",
            *["      " + r for r in self.deferred_rows],
            "    } else {",
            "      [=]() __attribute__((noinline)) {",
            *["        " + s for s in self.deferred_setup],
            "        const int lanes = full ? W : int(call->end - e0);",
            f"        for (int l = 0; l < lanes; ++l) {{ {writes} }}",
            "      }();",
            "    }",
        ]

    def lane_by_lane(self) -> list[str]:
        """The writes of a packet, lane by lane; skips lanes without writes."""
        masks = list(dict.fromkeys(on for on, _ in self.deferred if on))
        writes = " ".join(w for _, w in self.deferred)
        guarded = " ".join(f"if ({on} >> l & 1) {w}" if on else w for on, w in self.deferred)
        some, any_of = f"for (int l = 0; l < lanes; ++l) {{ {guarded} }}", "true"
        if all(on for on, _ in self.deferred):
            any_of = " | ".join(masks)
            left = f"unsigned left = ({any_of}) & unsigned((1ull << lanes) - 1)"
            body = writes if len(masks) == 1 else guarded
            some = f"for ({left}; left; left &= left - 1) {{ const int l = __builtin_ctz(left); {body} }}"
        every = " && ".join(["full", *(f"{on} == unsigned((1ull << W) - 1)" for on in masks)])
        return [
            f"    if ({any_of}) {{",
            *["      " + s for s in self.deferred_setup],
            f"      if (__builtin_expect({every}, 1)) {{",
            f'        _Pragma("GCC unroll 16") for (int l = 0; l < W; ++l) {{ {writes} }}',
            "      } else {",
            "        const int lanes = full ? W : int(call->end - e0);",
            f"        {some}",
            "      }",
            "    }",
        ]

    def scatter_now(self, node: Store, text: str) -> None:
        base, p = self.array_names[node.array], self.stride(node.array)
        row = self.fresh("row")
        self.put(f"const I {row} = {text} * splat<I>(U({p}));")
        for c, v in enumerate(node.values):
            self.put(f"scatter_{node.mode}({base} + {c}, {row}, {self.ref(v, True)}, {self.active()});")
