"""The folder and the streams through which a kernel and its ranks communicate."""
