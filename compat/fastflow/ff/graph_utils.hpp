#pragma once

#include <functional>
#include <type_traits>

#include <ff/combine.hpp>
#include <ff/farm_block.hpp>
#include <ff/pipeline_block.hpp>

namespace ff {
namespace detail {

using copy_of = std::function<ff_node*()>;
template <typename T>
copy_of copies(const T* node) {
    if (node == nullptr) return {};
    if constexpr (std::is_abstract_v<T>)
        return [] { return static_cast<ff_node*>(nullptr); };
    else
        return [node] { return static_cast<ff_node*>(new T(*node)); };
}
int combine_first(ff_pipeline& pipe, ff_node* node, bool cleanup, const copy_of& copy);
int combine_last(ff_pipeline& pipe, ff_node* node, bool cleanup, const copy_of& copy);
ff_farm farms_a2a(ff_farm& farm1, const copy_of& after_first, const copy_of& before_second,
                  ff_farm& farm2);
ff_pipeline farms(ff_farm& farm1, ff_node* node1, const copy_of& copy1, ff_farm& farm2,
                  const copy_of& copy2, bool merge);

}  // namespace detail

/// Replaces the first, or last, node of a pipeline by a combination with `node`. In a set of nodes,
/// each gets a copy. -1: that is not possible.
template <typename T>
int combine_with_firststage(ff_pipeline& pipe, T* node, bool cleanup = false) {
    return detail::combine_first(pipe, node, cleanup, detail::copies(node));
}
template <typename T>
int combine_with_laststage(ff_pipeline& pipe, T* node, bool cleanup = false) {
    return detail::combine_last(pipe, node, cleanup, detail::copies(node));
}
/// A pipeline of both with one thread less: a node beside a farm becomes part of its emitter or
/// collector.
ff_pipeline combine_nodes_in_pipeline(ff_node& node1, ff_node& node2, bool cleanup1 = false,
                                      bool cleanup2 = false);
/// An ordered farm before another farm.
ff_pipeline combine_ofarm_farm(ff_farm& farm1, ff_farm& farm2);
/// One farm whose workers are an all-to-all of both farms' workers.
inline ff_farm combine_farms_a2a(ff_farm& farm1, ff_farm& farm2) {
    return detail::farms_a2a(farm1, {}, {}, farm2);
}
template <typename Emitter>
ff_farm combine_farms_a2a(ff_farm& farm1, const Emitter& emitter, ff_farm& farm2) {
    return detail::farms_a2a(farm1, detail::copies(&emitter), {}, farm2);
}
/// One farm whose workers are combinations of both farms' workers.
ff_farm combine_farms_nf(ff_farm& farm1, ff_farm& farm2);
/// Two farms without the threads between them. `merge`: the nodes become the second one's emitter;
/// otherwise copies of them are combined with the workers, in an all-to-all.
template <typename Collector, typename Emitter>
ff_pipeline combine_farms(ff_farm& farm1, const Collector* node1, ff_farm& farm2,
                          const Emitter* node2, bool merge) {
    return detail::farms(farm1, const_cast<Collector*>(node1), detail::copies(node1), farm2,
                         detail::copies(node2), merge);
}
/// The block inside `start` that has `node` as a direct part; null: none.
ff_node* getBB(ff_node* start, ff_node* node);

}  // namespace ff
