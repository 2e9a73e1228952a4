"""Settings beside torch's own reader of them: `c10::CachingAllocator::AcceleratorAllocatorConfig`.

It is in every build of torch, with its header, and so can be asked without a GPU.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from workbench.allocator.simulator.settings import AllocatorSettings, SettingsError

WORDS = [
    "",
    "max_split_size_mb:20",
    "max_split_size_mb:19",
    "max_split_size_mb:200,garbage_collection_threshold:0.6",
    "garbage_collection_threshold:1.0",
    "expandable_segments:True",
    "expandable_segments:true",
    "large_segment_size_mb:21",
    "large_segment_size_mb:10",
    "max_non_split_rounding_mb:50",
    "max_non_split_rounding_mb:5",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:6",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]",
    "roundup_power2_divisions:[512:2]",
    "roundup_power2_divisions:[300:4]",
    "roundup_power2_divisions:[>:4]",
    "roundup_power2_divisions:0",
    "garbage_collection_threshold:0",
]
PROGRAM = r"""
#include <c10/core/AllocatorConfig.h>
#include <cstdio>
int main(int, char** argv) {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  try {
    Config::instance().parseArgs(argv[1]);
  } catch (const std::exception&) {
    return 3;
  }
  auto split = Config::max_split_size();
  std::printf("%lld %zu %.6f %d %zu", split == SIZE_MAX ? -1LL : (long long)split,
              Config::max_non_split_rounding_size(), Config::garbage_collection_threshold(),
              (int)Config::use_expandable_segments(), Config::large_segment_size());
  for (auto number : Config::roundup_power2_divisions()) std::printf(" %zu", number);
}
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile torch's own reader of settings with")
    folder = tmp_path_factory.mktemp("reader")
    source, program = folder / "reader.cpp", folder / "reader"
    source.write_text(PROGRAM)
    root = Path(torch.__file__).parent
    command = [compiler, "-std=c++20", f"-I{root / 'include'}", str(source), f"-L{root / 'lib'}"]
    command += ["-lc10", f"-Wl,-rpath,{root / 'lib'}", "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    return program


@pytest.mark.parametrize("words", WORDS)
def test_settings_are_read_as_torch_reads_them(reader, words):
    done = subprocess.run([reader, words], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        with pytest.raises(SettingsError):
            AllocatorSettings.parse(words)
        return
    found = AllocatorSettings.parse(words)
    mine = [
        -1 if found.max_split_size is None else found.max_split_size,
        found.max_non_split_rounding,
        f"{found.garbage_collection_threshold:.6f}",
        int(found.expandable_segments),
        found.large_segment_size,
        *found.roundup_power2_divisions,
    ]
    assert " ".join(map(str, mine)) == done.stdout
