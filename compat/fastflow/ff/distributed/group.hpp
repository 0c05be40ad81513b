#pragma once

#include <string>

namespace ff {

class ff_node;

/// A group of a distributed program, to which `<<` adds nodes and blocks. The first that is added
/// takes the place of the block that the group was created from.
///
/// Failure: a sentence on stderr, and run_and_wait_end() returns -1: a node that has a group
///          already.
struct GroupInterface {
    explicit GroupInterface(std::string group, ff_node* from = nullptr);
    GroupInterface& operator<<(ff_node* node);
    GroupInterface& operator<<(ff_node& node) { return *this << &node; }
    GroupInterface& operator<<=(ff_node* node) { return *this << node; }
    GroupInterface& operator<<=(ff_node& node) { return *this << &node; }

    std::string name;
    ff_node* base;
};
/// A group of nodes that are added to it.
GroupInterface createGroup(const std::string& name, const std::string& host = "");

}  // namespace ff
