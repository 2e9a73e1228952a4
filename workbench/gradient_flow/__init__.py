"""The norm of every module's gradient over time: logged, kept, drawn."""
