#include "tasks/parallel/graph_order.hpp"

#include <algorithm>

namespace amalgam::detail {

namespace {

/// As reserve(), but doubles the capacity, so that many additions one by one stay cheap.
template <typename T>
void reserve_more(std::vector<T>& in, std::size_t more) {
    if (in.capacity() - in.size() < more) in.reserve(std::max(2 * in.capacity(), in.size() + more));
}

void order(graph_task& first, graph_task& then) noexcept {
    first.before.push_back(&then);
    ++then.waits_for;
}

void use_datum(graph_task& task, graph_datum& datum, bool writes) noexcept {
    if (datum.writer == &task) return;  // named twice
    // Readers already wait for the writer.
    const bool waits_for_readers = writes && !datum.readers.empty();
    if (waits_for_readers) {
        for (graph_task* reader : datum.readers) {
            if (reader != &task) order(*reader, task);
        }
    } else if (datum.writer != nullptr) {
        order(*datum.writer, task);
    }
    if (writes) {
        datum.writer = &task;
        datum.readers.clear();
    } else if (datum.readers.empty() || datum.readers.back() != &task) {
        datum.readers.push_back(&task);
    }
}

}  // namespace

void graph_order::make_room(graph_task& task, std::span<const task_graph::use> uses) {
    task.data.reserve(uses.size());
    for (const task_graph::use& each : uses) {
        graph_datum& datum = data_[each.what];
        datum.what = each.what;
        if (datum.last_number != task.number) {
            datum.last_number = task.number;
            task.data.push_back(&datum);
        }
        reserve_more(datum.readers, 1);
        if (datum.writer != nullptr) reserve_more(datum.writer->before, uses.size());
        if (!each.writes) continue;
        for (graph_task* reader : datum.readers)
            reserve_more(reader->before, uses.size());
    }
}

void graph_order::add(graph_task& task, std::span<const task_graph::use> uses) {
    task.number = ++last_number_;
    try {
        make_room(task, uses);
    } catch (...) {
        for (graph_datum* each : task.data)
            drop_if_unused(*each);
        throw;
    }
    for (const task_graph::use& each : uses)
        use_datum(task, data_.find(each.what)->second, each.writes);
}

void graph_order::end(graph_task& task, ready_list& ready) noexcept {
    for (graph_datum* datum : task.data) {
        if (datum->writer == &task) datum->writer = nullptr;
        const auto found = std::find(datum->readers.begin(), datum->readers.end(), &task);
        if (found != datum->readers.end()) {
            *found = datum->readers.back();
            datum->readers.pop_back();
        }
        drop_if_unused(*datum);
    }
    for (graph_task* each : task.before) {
        if (--each->waits_for == 0) ready.push(*each);
    }
}

void graph_order::drop_if_unused(graph_datum& datum) noexcept {
    if (datum.writer == nullptr && datum.readers.empty()) data_.erase(datum.what);
}

}  // namespace amalgam::detail
