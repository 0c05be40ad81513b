#pragma once

#include <ff/node.hpp>

namespace ff::detail {

/// A node with one output as one with several: what it sends goes to whoever is next. One that has
/// several is returned itself. `own`: the new node deletes it.
ff_node* with_several_outputs(ff_node* node, bool own);

}  // namespace ff::detail
