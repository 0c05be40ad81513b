#pragma once
#error "refused: ff/icl_hash.h is one of FastFlow's inner parts; expected std::unordered_map"
